#include <fstream>
#include <map>
#include <string>

#include "base/input_file.h"
#include "base/message.h"
#include "bench.h"
#include "failure.h"

namespace kpage::cli {
namespace {

struct Results {
  std::map<std::string, double> times;  // by "layout, pass, kernel"
  double dense = 0;                     // TFLOP/s of dense attention; 0: not measured
};

Results read_results(const std::string& path) {
  std::ifstream file = open_input(path);
  if (!file.is_open()) {
    throw bad_input("--compare: cannot read " + path);
  }
  Json json;
  try {
    json = Json::parse(file);
  } catch (const Json::exception& error) {
    throw bad_input("--compare: " + path + " is not JSON: " + error.what());
  }
  if (!json.is_object() || !json.contains("rows") || !json["rows"].is_array()) {
    throw bad_input("--compare: " + path + ": expected an object with an array rows");
  }
  Results results;
  for (const Json& row : json["rows"]) {
    const std::string where =
        "--compare: " + path + ": row " + std::to_string(results.times.size());
    std::string name;
    for (const char* key : {"layout", "pass", "kernel"}) {
      if (!row.is_object() || !row.contains(key) || !row[key].is_string()) {
        throw bad_input(where + ": expected a string " + key);
      }
      name += name.empty() ? "" : ", ";
      name += row[key].get<std::string>();
    }
    if (!row.contains("time_ms") || !row["time_ms"].is_number() ||
        !(row["time_ms"].get<double>() > 0)) {
      throw bad_input(where + ": expected a time_ms above 0");
    }
    if (!results.times.emplace(name, row["time_ms"].get<double>()).second) {
      throw bad_input(text(where, ": ", name, " comes twice"));
    }
  }
  if (json.contains("r_dense") && json["r_dense"].is_object()) {
    const Json& forward = json["r_dense"].value("forward", Json());
    results.dense = forward.is_number() ? forward.get<double>() : 0;
  }
  return results;
}

}  // namespace

Comparison compare_results(const std::string& a, const std::string& b, double tolerance) {
  const Results before = read_results(a);
  const Results after = read_results(b);
  const bool relative = before.dense > 0 && after.dense > 0;
  const double scale = relative ? after.dense / before.dense : 1;
  Comparison comparison;
  Page& page = comparison.page;
  page.title("From " + a + " to " + b);
  page.section(relative ? "Time, relative to dense attention in the same run" : "Time");
  page.json["relative_to_dense"] = relative;
  page.json["tolerance"] = tolerance;
  page.json["rows"] = Json::array();
  for (const auto& [name, time] : before.times) {
    const auto found = after.times.find(name);
    if (found == after.times.end()) {
      comparison.regressed = true;
      page.row(name, "missing");
      page.json["rows"].push_back({{"row", name}, {"ratio", nullptr}, {"regressed", true}});
      continue;
    }
    const double ratio = found->second * scale / time;
    const bool slower = ratio > 1 + tolerance;
    comparison.regressed = comparison.regressed || slower;
    page.row(name, fixed(ratio, 3) + " x",
             duration(time) + " to " + duration(found->second) + (slower ? "  SLOWER" : ""));
    page.json["rows"].push_back({{"row", name}, {"ratio", ratio}, {"regressed", slower}});
  }
  for (const auto& [name, time] : after.times) {
    if (!before.times.contains(name)) {
      page.row(name, "new", duration(time));
      page.json["rows"].push_back({{"row", name}, {"ratio", nullptr}, {"regressed", false}});
    }
  }
  page.json["regressed"] = comparison.regressed;
  return comparison;
}

}  // namespace kpage::cli
