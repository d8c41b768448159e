// A page of pictures and tables as one HTML file, which needs nothing but itself.
#pragma once

#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kpage::cli {

class Html {
 public:
  explicit Html(const std::string& title);

  void text(const std::string& paragraph);
  // A row of figures, each with what it is.
  void tiles(const std::vector<std::pair<std::string, std::string>>& figures);
  // `content` is HTML; without any there is no section.
  void section(const std::string& title, const std::string& text, const std::string& content);

  [[nodiscard]] std::string str() const { return out_.str() + "</main></body></html>\n"; }

 private:
  std::ostringstream out_;
};

// What the colours of a picture mean: names of the style's colours, and what they stand for.
[[nodiscard]] std::string key(std::initializer_list<std::pair<const char*, const char*>> entries);

}  // namespace kpage::cli
