#include "svg.h"

#include <cmath>

namespace kpage::cli {
namespace {

// A tenth of a pixel is enough.
std::string number(double value) {
  const auto tenths = static_cast<std::int64_t>(std::llround(value * 10));
  std::string text = std::to_string(tenths / 10);
  if (tenths % 10 != 0) {
    text = (tenths < 0 && tenths > -10 ? "-0" : text) + "." + std::to_string(std::abs(tenths % 10));
  }
  return text;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

Svg::Svg(double width, double height, const std::string& description)
    : open_("<svg viewBox=\"0 0 " + number(width) + " " + number(height) + "\" width=\"" +
            number(width) + "\" role=\"img\" aria-label=\"" + escaped(description) + "\">") {}

void Svg::rect(double x, double y, double width, double height, const std::string& style_class,
               const std::string& tooltip, double radius) {
  body_ << "<rect x=\"" << number(x) << "\" y=\"" << number(y) << "\" width=\"" << number(width)
        << "\" height=\"" << number(height) << "\" class=\"" << style_class << '"';
  if (radius > 0) {
    body_ << " rx=\"" << number(radius) << '"';
  }
  if (tooltip.empty()) {
    body_ << "/>";
  } else {
    body_ << "><title>" << escaped(tooltip) << "</title></rect>";
  }
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& style_class) {
  body_ << "<line x1=\"" << number(x1) << "\" y1=\"" << number(y1) << "\" x2=\"" << number(x2)
        << "\" y2=\"" << number(y2) << "\" class=\"" << style_class << "\"/>";
}

void Svg::text(double x, double y, const std::string& text, const std::string& style_class,
               const std::string& anchor) {
  body_ << "<text x=\"" << number(x) << "\" y=\"" << number(y) << "\" class=\"" << style_class
        << "\" text-anchor=\"" << anchor << "\">" << escaped(text) << "</text>";
}

void Svg::cell(double x, double y, double width, double height, const std::string& style_class) {
  cells_[style_class] << 'M' << number(x) << ' ' << number(y) << 'h' << number(width) << 'v'
                      << number(height) << 'h' << number(-width) << 'z';
}

std::string Svg::str() const {
  std::string text = open_;
  for (const auto& [style_class, path] : cells_) {
    text += "<path class=\"" + style_class + "\" d=\"" + path.str() + "\"/>";
  }
  return text + body_.str() + "</svg>";
}

}  // namespace kpage::cli
