// What a command prints: one page of titled rows for people, or the same figures as JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "console.h"

namespace kpage::cli {

using Json = nlohmann::ordered_json;

// As text, which JSON wants in UTF-8: names of files need not be, and get U+FFFD for what is not.
[[nodiscard]] std::string json_text(const Json& json, int indent);

// "1,234,567"
[[nodiscard]] std::string grouped(std::int64_t value);
// "161.1 G", "3.2 k", "17": three to four digits and a decimal prefix.
[[nodiscard]] std::string scaled(double value);
[[nodiscard]] std::string bytes_text(std::int64_t bytes);
// "81.3 %"
[[nodiscard]] std::string percent(double fraction);
// "12.3 ms", "4.56 s"
[[nodiscard]] std::string duration(double milliseconds);
// "1.9e-03"
[[nodiscard]] std::string scientific(double value);
[[nodiscard]] std::string fixed(double value, int decimals);
// A bar of eighths of a character cell, `fraction` of `cells` long.
[[nodiscard]] std::string bar(double fraction, int cells);
// One cell of a map: █ for all, ▓ ▒ ░ for three quarters and more, two, anything less, · for
// nothing.
[[nodiscard]] std::string shade_text(double fraction);

class Page {
 public:
  void title(const std::string& text) { title_ = text; }
  [[nodiscard]] const std::string& title() const { return title_; }
  void section(const std::string& text);
  void row(const std::string& label, const std::string& value, const std::string& note = "");
  // A line of the page as it stands, for instance of a map.
  void line(const std::string& text);

  // The page, or with `json` the figures alone.
  void print(const Console& console, bool as_json) const;

  Json json = Json::object();

 private:
  struct Line {
    enum class Kind { kSection, kRow, kVerbatim } kind;
    std::string label;
    std::string value;
    std::string note;
  };
  std::string title_;
  std::vector<Line> lines_;
};

}  // namespace kpage::cli
