// What the lists of a layout select, as rows and JSON, and the whole layout as an HTML page.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "kpage/layout.h"

#include "layout_flags.h"
#include "page.h"

namespace kpage::cli {

// Selected pairs, the density of each head, and whether lists are random.
void add_lists(Page& page, const LayoutCase& made);
// Which key blocks the query blocks of one head attend to; heads are numbered batch * heads + head.
void add_selection(Page& page, const Layout& layout, std::int32_t batch_head);

// Pictures of the layout; of heads beyond the first dozen no selection map.
void write_layout_report(std::ostream& file, const LayoutCase& made);

}  // namespace kpage::cli
