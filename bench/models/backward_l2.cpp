// A model of what the backward moves between HBM and L2: CTAs that walk their owners tile by tile,
// in the order of a plan and joining their head's sweep, over a cache of query pages (Q, dO and dQ
// of each) that forgets the one that was not used for longest. Nothing of it is timed and no GPU is
// needed; docs/backward.md says how it compares with counters.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include <CLI/CLI.hpp>

#include "kpage/geometry.h"
#include "kpage/plan.h"

#include "plan/format.h"

namespace kpage::bench {
namespace {

constexpr std::int32_t kTilePages = 4;            // query pages of a tile
constexpr double kPageBytes = 4096 * 2 + 8192;    // Q and dO in 16 bits, dQ in 32, at D 128
constexpr double kMissBytes = kPageBytes + 8192;  // dQ is written back
// Times in tiles of eight slots: of a tile of four (2,300 clocks of 3,480), and of an owner's
// start.
constexpr double kSmallTile = 0.66;
constexpr double kStart = 1.5;

struct Options {
  std::vector<std::string> layouts;
  double cache_mb = 30;
  std::int32_t ctas = 132;
  bool from_first = false;
};

// Least recently used pages go first.
class PageCache {
 public:
  explicit PageCache(double bytes) : capacity_(static_cast<std::size_t>(bytes / kPageBytes)) {}

  // Whether the page was there; it is now.
  bool touch(std::int64_t page) {
    if (const auto found = places_.find(page); found != places_.end()) {
      pages_.splice(pages_.begin(), pages_, found->second);
      return true;
    }
    pages_.push_front(page);
    places_[page] = pages_.begin();
    if (pages_.size() > capacity_) {
      places_.erase(pages_.back());
      pages_.pop_back();
    }
    return false;
  }

 private:
  std::size_t capacity_;
  std::list<std::int64_t> pages_;
  std::unordered_map<std::int64_t, std::list<std::int64_t>::iterator> places_;
};

std::vector<const plan::Owner*> order_of_work(const plan::BackwardView& backward) {
  std::vector<const plan::Owner*> order;
  const std::int32_t items = backward.header->items8 + backward.header->items4;
  for (std::int32_t i = 0; i < items; ++i) {
    if (backward.items[i].group == 0) {
      order.push_back(backward.owners + backward.items[i].owner);
    }
  }
  return order;
}

bool share_a_sweep(const plan::Owner& a, const plan::Owner& b) {
  return a.batch_head == b.batch_head && a.slots == b.slots;
}

// The query pages of an owner's walk, numbered over all heads.
std::vector<std::int64_t> pages_of(const plan::ForwardView& forward,
                                   const plan::BackwardView& backward, const plan::Owner& owner) {
  const std::int64_t head_pages =
      std::int64_t{forward.shape.q_blocks} * plan::kBlockPages * owner.batch_head;
  const plan::Extent* blocks = forward.q_blocks(owner.batch_head);
  std::vector<std::int64_t> pages;
  for (std::int32_t i = 0; i < owner.entries; ++i) {
    const plan::Extent& block =
        blocks[plan::entry_block(backward.q_entries[owner.entry_begin + i])];
    for (std::int32_t page = 0; page < plan::pages_of(block.rows); ++page) {
      pages.push_back(head_pages + block.page + page);
    }
  }
  return pages;
}

struct Outcome {
  std::int64_t touched = 0;
  std::int64_t missed = 0;
  double time = 0;
};

struct Cta {
  const plan::Owner* owner = nullptr;
  bool leads = false;  // its head's sweep, as the CTA of the first owner
  std::vector<std::int64_t> pages;
  std::size_t at = 0;
};

Outcome simulate(const plan::ForwardView& forward, const plan::BackwardView& backward,
                 const Options& options) {
  const std::vector<const plan::Owner*> order = order_of_work(backward);
  PageCache cache(options.cache_mb * 1e6);
  Outcome outcome;
  std::vector<Cta> ctas(static_cast<std::size_t>(options.ctas));
  std::size_t next = 0;
  std::int64_t sweep = 0;  // the page at which the newest head's leader is

  using Event = std::pair<double, std::size_t>;  // when which CTA goes on
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  const auto draw = [&](std::size_t which, double when) {
    if (next == order.size()) {
      return;
    }
    const plan::Owner* owner = order[next];
    const bool first = next == 0 || !share_a_sweep(*order[next - 1], *owner);
    Cta& cta = ctas[which];
    const bool leads = first || (cta.leads && share_a_sweep(*cta.owner, *owner));
    cta = {owner, leads, pages_of(forward, backward, *owner), 0};
    sweep = first ? 0 : sweep;
    if (!options.from_first) {
      std::ranges::rotate(cta.pages, std::ranges::lower_bound(cta.pages, sweep));
    }
    ++next;
    events.emplace(when + kStart, which);
  };
  for (std::size_t i = 0; i < ctas.size(); ++i) {
    draw(i, 0);
  }
  while (!events.empty()) {
    const auto [when, which] = events.top();
    events.pop();
    Cta& cta = ctas[which];
    if (cta.leads && cta.at < cta.pages.size() && share_a_sweep(*cta.owner, *order[next - 1])) {
      sweep = cta.pages[cta.at];
    }
    for (std::int32_t i = 0; i < kTilePages && cta.at < cta.pages.size(); ++i, ++cta.at) {
      ++outcome.touched;
      outcome.missed += cache.touch(cta.pages[cta.at]) ? 0 : 1;
    }
    const double end = when + (cta.owner->slots == plan::kOwnerSlots ? 1 : kSmallTile);
    outcome.time = std::max(outcome.time, end);
    if (cta.at < cta.pages.size()) {
      events.emplace(end, which);
    } else {
      draw(which, end);
    }
  }
  return outcome;
}

int run(const Options& options) {
  std::printf("%-22s %8s %8s %8s %10s\n", "layout", "owners", "missed", "HBM GB", "tiles");
  for (const std::string& name : options.layouts) {
    const Result<Layout> layout = named_layout(name, 1);
    if (!layout.ok()) {
      std::fprintf(stderr, "%s\n", layout.status().message().c_str());
      return 2;
    }
    Plan plan = Plan::build(layout.value().view()).value();
    if (const Status status = plan.build_backward(); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.message().c_str());
      return 1;
    }
    const auto forward = plan::ForwardView::at(plan.shape(), plan.forward().data());
    const auto backward = plan::BackwardView::at(plan.shape(), plan.backward().data());
    const Outcome o = simulate(forward, backward, options);
    std::printf("%-22s %8d %7.1f%% %8.1f %10.0f\n", name.c_str(), backward.header->owners,
                100.0 * static_cast<double>(o.missed) / static_cast<double>(o.touched),
                static_cast<double>(o.missed) * kMissBytes / 1e9, o.time);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace kpage::bench

int main(int argc, char** argv) {
  kpage::bench::Options options;
  CLI::App app("Models the HBM traffic of the backward on named layouts");
  app.add_option("layouts", options.layouts, "names")->required();
  app.add_option("--cache", options.cache_mb, "MB of query pages that L2 holds")
      ->check(CLI::PositiveNumber);
  app.add_option("--ctas", options.ctas, "that run at once")->check(CLI::PositiveNumber);
  app.add_flag("--from-first", options.from_first,
               "walks begin at their first entry, not where their head's sweep is");
  CLI11_PARSE(app, argc, argv);
  return kpage::bench::run(options);
}
