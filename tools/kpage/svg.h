// Inline SVG, just enough for the pictures of a report. Colours are classes of the page's style.
#pragma once

#include <cstdint>
#include <map>
#include <sstream>
#include <string>

namespace kpage::cli {

[[nodiscard]] std::string escaped(const std::string& text);  // for HTML text and attributes

// Coordinates are CSS pixels at full width; y goes down.
class Svg {
 public:
  Svg(double width, double height, const std::string& description);

  void rect(double x, double y, double width, double height, const std::string& style_class,
            const std::string& tooltip = "", double radius = 0);
  void line(double x1, double y1, double x2, double y2, const std::string& style_class);
  // anchor: start, middle or end.
  void text(double x, double y, const std::string& text, const std::string& style_class,
            const std::string& anchor = "start");
  // Many small squares of one class are one path, which keeps the file small.
  void cell(double x, double y, double width, double height, const std::string& style_class);

  [[nodiscard]] std::string str() const;

 private:
  std::string open_;
  std::ostringstream body_;
  std::map<std::string, std::ostringstream> cells_;
};

}  // namespace kpage::cli
