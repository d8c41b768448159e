#include "api/backends.h"

#include <string>
#include <vector>

#include "api/checks.h"
#include "base/message.h"
#include "cpu/cpu.h"

#if KPAGE_HAS_CUDA
#include "kernels/sm90/backward/launch.h"
#include "kernels/sm90/forward/launch.h"
#endif

namespace kpage::api {
namespace {

constexpr std::int64_t kCpuHeadDimStep = 8;  // of its vectors
constexpr std::int64_t kCpuHeadDimMost = 256;

template <class Args>
Status cpu_supports(const Args& args) {
  const std::int64_t head_dim = args.q.shape[3];
  if (head_dim % kCpuHeadDimStep != 0 || head_dim > kCpuHeadDimMost) {
    return {ErrorCode::kUnsupported, text("head dimensions that are multiples of ", kCpuHeadDimStep,
                                          " up to ", kCpuHeadDimMost, ", not ", head_dim)};
  }
  return {};
}

template <class Args>
std::int64_t no_workspace(const Args& /*args*/) {
  return 0;
}

std::vector<Backend> make_backends() {
  std::vector<Backend> made;
  made.push_back({{"cpu",
                   DeviceType::kCpu,
                   {DType::kBFloat16, DType::kFloat16},
                   text("multiples of ", kCpuHeadDimStep, " up to ", kCpuHeadDimMost),
                   /*deterministic=*/true},
                  {cpu_supports<ForwardArgs>, no_workspace<ForwardArgs>, cpu::forward},
                  {cpu_supports<BackwardArgs>, no_workspace<BackwardArgs>, cpu::backward}});
#if KPAGE_HAS_CUDA
  made.push_back(
      {{"sm90",
        DeviceType::kCuda,
        {DType::kBFloat16, DType::kFloat16},
        "64, 128",
        /*deterministic=*/true},
       {kernels::sm90::can_forward, kernels::sm90::forward_workspace_bytes, kernels::sm90::forward},
       {kernels::sm90::can_backward, kernels::sm90::backward_workspace_bytes,
        kernels::sm90::backward}});
#endif
  return made;
}

template <class Args>
Result<const Backend*> choose_of(const Args& args) {
  std::string refusals;
  for (const Backend& backend : all_backends()) {
    if (backend.info.device != args.q.device.type) {
      continue;
    }
    const Status status = backend.pass(args).supports(args);
    if (status.ok()) {
      return &backend;
    }
    if (status.code() != ErrorCode::kUnsupported) {
      return status;
    }
    refusals += text("; ", backend.info.name, " supports ", status.message());
  }
  if (refusals.empty()) {
    refusals = text("; this build of KPage has none for ", device_name(args.q.device.type));
  }
  return Status(ErrorCode::kUnsupported,
                text("no backend runs ", dtype_name(args.q.dtype), ", head dimension ",
                     args.q.shape[3], " on ", device_text(args.q.device), refusals));
}

}  // namespace

std::span<const Backend> all_backends() {
  static const std::vector<Backend> kMade = make_backends();
  return kMade;
}

Result<const Backend*> choose(const ForwardArgs& args) { return choose_of(args); }
Result<const Backend*> choose(const BackwardArgs& args) { return choose_of(args); }

}  // namespace kpage::api

namespace kpage {

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> infos;
  for (const api::Backend& backend : api::all_backends()) {
    infos.push_back(backend.info);
  }
  return infos;
}

}  // namespace kpage
