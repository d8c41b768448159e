// kpage info: what this build can do on this machine.
#include <memory>
#include <string>
#include <thread>

#include "kpage/backends.h"
#include "kpage/version.h"

#include "commands.h"
#include "machine.h"
#include "page.h"

namespace kpage::cli {
namespace {

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "fp16";
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat64:
      return "fp64";
  }
  return "";
}

void info(const Console& console, bool as_json) {
  Page page;
  page.title(std::string("KPage ") + version());
  page.json["version"] = version();

  page.section("Backends");
  page.json["backends"] = Json::array();
  for (const BackendInfo& backend : backends()) {
    std::string dtypes;
    Json names = Json::array();
    for (const DType dtype : backend.dtypes) {
      dtypes += (dtypes.empty() ? "" : ", ") + std::string(name_of(dtype));
      names.push_back(name_of(dtype));
    }
    page.row(backend.name, dtypes, "head dim " + backend.head_dims);
    page.json["backends"].push_back(
        {{"name", backend.name},
         {"device", backend.device == DeviceType::kCpu ? "cpu" : "cuda"},
         {"dtypes", names},
         {"head_dims", backend.head_dims},
         {"deterministic_backward", backend.deterministic}});
  }

  page.section("Machine");
  const std::string isa = cpu_instruction_sets();
  page.row("CPU", cpu_name());
  page.row("instruction sets", isa);
  page.row("threads", std::to_string(std::thread::hardware_concurrency()));
  page.json["cpu"] = {{"name", cpu_name()},
                      {"instruction_sets", isa},
                      {"threads", std::thread::hardware_concurrency()}};
  page.json["cuda_devices"] = Json::array();
  const CudaDevices cuda = cuda_devices();
  for (const std::string& device : cuda.names) {
    page.row("CUDA device " + std::to_string(page.json["cuda_devices"].size()), device);
    page.json["cuda_devices"].push_back(device);
  }
  if (cuda.names.empty()) {
    page.row("CUDA device", "none", cuda.why_none);
    page.json["cuda_absent"] = cuda.why_none;
  }
  page.print(console, as_json);
}

}  // namespace

Command add_info(CLI::App& app) {
  CLI::App* flags = app.add_subcommand("info", "Version, backends, CPU and GPU of this machine");
  const auto as_json = std::make_shared<bool>(false);
  flags->add_flag("--json", *as_json, "Print JSON");
  return {flags, [as_json](const Console& console) { info(console, *as_json); }};
}

}  // namespace kpage::cli
