#include "page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <ostream>
#include <sstream>

namespace kpage::cli {
namespace {

// Character cells of UTF-8 text: bytes that do not continue a character.
std::size_t cells_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string with_prefix(double value, double step, const std::array<const char*, 6>& prefixes,
                        const char* unit) {
  std::size_t i = 0;
  while (std::abs(value) >= step && i + 1 < prefixes.size()) {
    value /= step;
    ++i;
  }
  const int decimals = i == 0 && value == std::floor(value) ? 0 : value >= 100 ? 1 : 2;
  const std::string suffix = std::string(prefixes[i]) + unit;
  return fixed(value, decimals) + (suffix.empty() ? "" : " " + suffix);
}

}  // namespace

std::string fixed(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string scaled(double value) {
  return with_prefix(value, 1000, {"", "k", "M", "G", "T", "P"}, "");
}

std::string bytes_text(std::int64_t bytes) {
  return with_prefix(static_cast<double>(bytes), 1024, {"", "Ki", "Mi", "Gi", "Ti", "Pi"}, "B");
}

std::string percent(double fraction) {
  return std::isfinite(fraction) ? fixed(100 * fraction, 1) + " %" : "-";
}

std::string duration(double milliseconds) {
  return milliseconds >= 1000 ? fixed(milliseconds / 1000, 2) + " s"
                              : fixed(milliseconds, milliseconds >= 100 ? 0 : 2) + " ms";
}

std::string scientific(double value) {
  std::ostringstream text;
  text << std::scientific << std::setprecision(2) << value;
  return text.str();
}

std::string bar(double fraction, int cells) {
  static constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double clamped = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  auto eighths = static_cast<std::size_t>(std::lround(clamped * 8 * cells));
  if (eighths == 0 && clamped > 0) {
    eighths = 1;  // something is never drawn as nothing
  }
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) {
    text += "█";
  }
  return text + kEighths[eighths % 8];
}

std::string shade_text(double fraction) {
  static constexpr std::array<const char*, 5> kShades = {"·", "░", "▒", "▓", "█"};
  const double quarters = std::isfinite(fraction) ? std::clamp(4 * fraction, 0.0, 4.0) : 0.0;
  return kShades[quarters > 0 ? std::max<std::size_t>(1, static_cast<std::size_t>(quarters)) : 0];
}

void Page::section(const std::string& text) {
  lines_.push_back({Line::Kind::kSection, text, "", ""});
}

void Page::row(const std::string& label, const std::string& value, const std::string& note) {
  lines_.push_back({Line::Kind::kRow, label, value, note});
}

void Page::line(const std::string& text) {
  lines_.push_back({Line::Kind::kVerbatim, text, "", ""});
}

void Page::print(const Console& console, bool as_json) const {
  if (as_json) {
    console.out << json_text(json, 2) << '\n';
    return;
  }
  const auto bold = [&](const std::string& text) {
    return console.color ? "\033[1m" + text + "\033[0m" : text;
  };
  const auto dim = [&](const std::string& text) {
    return console.color ? "\033[2m" + text + "\033[0m" : text;
  };
  std::size_t label_cells = 0;
  std::size_t value_cells = 0;
  for (const Line& line : lines_) {
    if (line.kind == Line::Kind::kRow) {
      label_cells = std::max(label_cells, cells_of(line.label));
      if (!line.note.empty()) {
        value_cells = std::max(value_cells, cells_of(line.value));
      }
    }
  }
  if (!title_.empty()) {
    console.out << bold(title_) << '\n';
  }
  for (const Line& line : lines_) {
    switch (line.kind) {
      case Line::Kind::kSection:
        console.out << '\n' << bold(line.label) << '\n';
        break;
      case Line::Kind::kVerbatim:
        console.out << "  " << line.label << '\n';
        break;
      case Line::Kind::kRow: {
        console.out << "  " << line.label
                    << std::string(label_cells - cells_of(line.label) + 2, ' ') << line.value;
        if (!line.note.empty()) {
          const std::size_t width = cells_of(line.value);
          console.out << std::string(value_cells > width ? value_cells - width + 2 : 2, ' ')
                      << dim(line.note);
        }
        console.out << '\n';
        break;
      }
    }
  }
}

}  // namespace kpage::cli
