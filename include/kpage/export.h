// Opens the library's namespace in a public header: `namespace KPAGE_EXPORT kpage {`. What is
// declared in it can be seen from outside a shared library; everything else in one is hidden.
#pragma once

#if defined(__GNUC__)
#define KPAGE_EXPORT [[gnu::visibility("default")]]
#else
#define KPAGE_EXPORT
#endif
