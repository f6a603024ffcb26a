// What autograd and torch's device functions ask of CUDA, answered for a device that does nothing.
//
// Loaded before a build of torch for CPUs is imported: there is then one CUDA device, with one
// stream, whose events are always done.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::EventFlag;
using c10::Stream;

Stream only_stream() {
  return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, 0));
}

struct OneDevice : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  DeviceIndex deviceCount() const noexcept override { return 1; }
  Stream getStream(Device) const noexcept override { return only_stream(); }
  Stream getDefaultStream(Device) const override { return only_stream(); }
  Stream exchangeStream(Stream) const noexcept override { return only_stream(); }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

OneDevice one_device;

struct Registered {
  Registered() {
    c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(&one_device);
  }
} registered;

}  // namespace

namespace at {

// A generator of the device: the numbers are those of the host's, whose kernels do not take it.
struct DeviceGenerator : CPUGeneratorImpl {
  DeviceGenerator() {
    device_ = c10::Device(c10::DeviceType::CUDA, 0);
  }
};

// torch looks for hooks by this very name.
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  Generator getNewGenerator(DeviceIndex) const override {
    return make_generator<DeviceGenerator>();
  }
  const Generator& getDefaultGenerator(DeviceIndex) const override {
    static const Generator generator = make_generator<DeviceGenerator>();
    return generator;
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at

namespace at::native {

// Of padded attention: flash (1) where there is no mask and the type is short, else the
// memory-efficient kernel (2), as on a GPU.
template <class... Rest>
int64_t attention_kernel(
    const Tensor& query,
    const Tensor&,
    const Tensor&,
    const std::optional<Tensor>& mask,
    Rest...) {
  bool is_short = query.scalar_type() == kHalf || query.scalar_type() == kBFloat16;
  return is_short && !(mask.has_value() && mask->defined()) ? 1 : 2;
}

REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &attention_kernel)

}  // namespace at::native
