// NVIDIA GPUs by the driver's own libraries, opened at run time.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "topology/discover/discover.hpp"
#include "topology/parse/nccl_rates.hpp"

namespace tamaki {
namespace {

/// A library for as long as it is used.
class Library {
 public:
  explicit Library(const char* name) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  // Not closed: the CUDA driver does not survive that while its threads run.
  template <class Function>
  bool find(const char* name, Function* function) const {
    *function = handle_ == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(handle_, name));
    return *function != nullptr;
  }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  void* handle_;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// "00000000:1B:00.0" (NVML) and "0000:1B:00.0" (CUDA) as Linux writes it.
std::string bus_id(const std::string& text) {
  const std::string id = lower(text);
  return id.size() == 16 ? id.substr(4) : id;
}

/// GPU of this bus id; a new one where hwloc saw none (containers hide PCI).
std::size_t gpu_at(HostKind* kind, const std::string& id) {
  for (std::size_t g = 0; g < kind->gpus.size(); ++g)
    if (lower(kind->gpus[g].pci) == id) return g;
  kind->gpus.push_back({.numa = kind->numa.size() == 1 ? 0 : -1, .pci = id});
  return kind->gpus.size() - 1;
}

/// Attributes of cuDeviceGetAttribute.
constexpr int kMemoryClockKhz = 36, kMemoryBusBits = 37, kMajor = 75, kMinor = 76;

void read_driver(const Library& cuda, HostKind* kind) {
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device_of)(int*, int) = nullptr;
  int (*name_of_device)(char*, int, int) = nullptr;
  int (*memory_of)(std::size_t*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*bus_of)(char*, int, int) = nullptr;
  if (!cuda.find("cuInit", &init) || !cuda.find("cuDeviceGetCount", &count) ||
      !cuda.find("cuDeviceGet", &device_of) || !cuda.find("cuDeviceGetName", &name_of_device) ||
      !cuda.find("cuDeviceTotalMem_v2", &memory_of) || !cuda.find("cuDeviceGetAttribute", &attribute) ||
      !cuda.find("cuDeviceGetPCIBusId", &bus_of))
    return;
  int devices = 0;
  if (init(0) != 0 || count(&devices) != 0) return;
  for (int d = 0; d < std::min(devices, kMostParts); ++d) {
    int device = 0, major = 0, minor = 0, clock = 0, bits = 0;
    char name[128] = {}, bus[32] = {};
    std::size_t memory = 0;
    if (device_of(&device, d) != 0 || bus_of(bus, sizeof bus, device) != 0) continue;
    Gpu& gpu = kind->gpus[gpu_at(kind, bus_id(bus))];
    if (name_of_device(name, sizeof name - 1, device) == 0) gpu.model = name;
    if (memory_of(&memory, device) == 0) gpu.memory_bytes = static_cast<double>(memory);
    if (attribute(&major, kMajor, device) == 0 && attribute(&minor, kMinor, device) == 0)
      gpu.compute_capability = 10 * major + minor;
    if (attribute(&clock, kMemoryClockKhz, device) == 0 && attribute(&bits, kMemoryBusBits, device) == 0)
      gpu.memory_bandwidth = 2.0 * clock * 1e3 * bits / 8;  // double data rate
  }
}

struct NvmlPci {  // nvmlPciInfo_t of nvml.h
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char bus_id[32];
};
static_assert(sizeof(NvmlPci) == 68);

using NvmlDevice = void*;

/// Where one link of a GPU leads. Device types of nvmlIntNvLinkDeviceType_t.
constexpr int kToGpu = 0, kToSwitch = 2;

void read_nvlinks(const Library& nvml, HostKind* kind) {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_at)(const char*, NvmlDevice*) = nullptr;
  int (*state_of)(NvmlDevice, unsigned, int*) = nullptr;
  int (*remote_type)(NvmlDevice, unsigned, int*) = nullptr;
  int (*remote_pci)(NvmlDevice, unsigned, NvmlPci*) = nullptr;
  if (!nvml.find("nvmlInit_v2", &init) || !nvml.find("nvmlShutdown", &shutdown) ||
      !nvml.find("nvmlDeviceGetHandleByPciBusId_v2", &device_at) ||
      !nvml.find("nvmlDeviceGetNvLinkState", &state_of) ||
      !nvml.find("nvmlDeviceGetNvLinkRemoteDeviceType", &remote_type) ||
      !nvml.find("nvmlDeviceGetNvLinkRemotePciInfo_v2", &remote_pci) || init() != 0)
    return;
  constexpr unsigned kMostLinks = 18;
  std::int32_t hub = -1;
  for (std::size_t g = 0; g < kind->gpus.size(); ++g) {
    NvmlDevice device = nullptr;
    if (device_at(kind->gpus[g].pci.c_str(), &device) != 0) continue;
    int to_switch = 0;
    std::map<std::int32_t, int> to_gpu;
    for (unsigned link = 0; link < kMostLinks; ++link) {
      int active = 0, type = -1;
      NvmlPci remote{};
      if (state_of(device, link, &active) != 0 || active == 0 || remote_type(device, link, &type) != 0)
        continue;
      if (type == kToSwitch) ++to_switch;
      if (type != kToGpu || remote_pci(device, link, &remote) != 0) continue;
      for (std::size_t peer = 0; peer < kind->gpus.size(); ++peer)
        if (lower(kind->gpus[peer].pci) == bus_id(remote.bus_id)) ++to_gpu[static_cast<std::int32_t>(peer)];
    }
    const Part self = {Part::Kind::gpu, static_cast<std::int32_t>(g)};
    const double rate = nvlink_rate(kind->gpus[g].compute_capability);
    for (const auto& [peer, links] : to_gpu)
      if (peer > self.index)
        kind->links.push_back({self, {Part::Kind::gpu, peer}, rate * links, 0, PartLink::Kind::nvlink});
    if (to_switch == 0) continue;
    if (hub < 0) {
      hub = static_cast<std::int32_t>(kind->hubs.size());
      kind->hubs.push_back({Hub::Kind::nvswitch, {}});
    }
    kind->links.push_back({self, {Part::Kind::hub, hub}, rate * to_switch, 0, PartLink::Kind::nvlink});
  }
  shutdown();
}

}  // namespace

void read_cuda(Machine* machine) {
  HostKind& kind = machine->kinds[0];
  const Library cuda("libcuda.so.1");
  if (cuda) read_driver(cuda, &kind);
  const bool nvidia = std::any_of(kind.gpus.begin(), kind.gpus.end(),
                                  [](const Gpu& g) { return g.compute_capability > 0; });
  if (nvidia)
    if (const Library nvml("libnvidia-ml.so.1"); nvml)
      read_nvlinks(nvml, &kind);
    else
      machine->notes.list.push_back(
          {"host.links", Note::Kind::assumption, "no NVLinks: libnvidia-ml.so.1 is not there"});
  else if (!cuda && !kind.gpus.empty())
    machine->notes.list.push_back({"host.gpus", Note::Kind::assumption,
                                   "models and memories are not known: libcuda.so.1 is not there"});
}

}  // namespace tamaki
