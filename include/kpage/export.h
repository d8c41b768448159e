// Marks what a shared KPage library shows; everything else in it is hidden.
#pragma once

#if defined(__GNUC__)
#define KPAGE_EXPORT __attribute__((visibility("default")))
#else
#define KPAGE_EXPORT
#endif
