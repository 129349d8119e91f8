#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "topology/discover/discover.hpp"

namespace tamaki {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

long number_of(const fs::path& path, long otherwise) {
  const std::string line = line_of(path);
  long value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  return error == std::errc() ? value : otherwise;
}

/// Names in a folder, sorted so that the order does not change from call to call.
std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// "0000:1b:00.0" of a device, or "" where it is on no PCI bus.
std::string pci_of(const fs::path& device) {
  std::error_code error;
  const std::string name = fs::canonical(device, error).filename().string();
  const bool pci = !error && name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
  return pci ? name : std::string();
}

struct Found {
  std::string name, pci;
  double bandwidth = 0;
  std::int32_t numa = -1;
};

std::vector<Found> verbs_devices(const fs::path& root) {
  std::vector<Found> found;
  for (const std::string& name : entries(root / "class/infiniband")) {
    const fs::path at = root / "class/infiniband" / name;
    Found device = {name, pci_of(at / "device"), 0,
                    static_cast<std::int32_t>(number_of(at / "device/numa_node", -1))};
    for (const std::string& port : entries(at / "ports"))
      if (device.bandwidth == 0) device.bandwidth = parse_verbs_rate(line_of(at / "ports" / port / "rate"));
    found.push_back(device);
  }
  return found;
}

std::vector<Found> network_interfaces(const fs::path& root) {
  constexpr long kLoopback = 772;  // ARPHRD_LOOPBACK of the type file
  std::vector<Found> found;
  for (const std::string& name : entries(root / "class/net")) {
    const fs::path at = root / "class/net" / name;
    const std::string state = line_of(at / "operstate");
    if (number_of(at / "type", 0) == kLoopback || state == "down" || state == "lowerlayerdown" ||
        state == "notpresent")
      continue;
    const long speed = number_of(at / "speed", -1);  // Mb/s; -1 where the driver does not know
    found.push_back({name, pci_of(at / "device"), speed > 0 ? static_cast<double>(speed) * 125e3 : 0,
                     static_cast<std::int32_t>(number_of(at / "device/numa_node", -1))});
  }
  return found;
}

}  // namespace

double parse_verbs_rate(const std::string& text) {
  double gigabits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gigabits);
  const bool good = error == std::errc() && std::string_view(end).starts_with(" Gb/sec") && gigabits > 0;
  return good ? gigabits * 125e6 : 0;
}

void read_sysfs_nics(const std::string& root, HostKind* kind) {
  std::vector<Found> found = verbs_devices(root);
  std::set<std::string> buses;
  for (const Found& device : found)
    if (!device.pci.empty()) buses.insert(device.pci);
  for (Found& device : network_interfaces(root))
    if (device.pci.empty() || !buses.contains(device.pci)) found.push_back(std::move(device));
  const auto domains = static_cast<std::int32_t>(kind->numa.size());
  for (const Found& device : found) {
    auto nic = std::find_if(kind->nics.begin(), kind->nics.end(),
                            [&](const Nic& n) { return n.name == device.name; });
    if (nic == kind->nics.end()) {
      if (kind->nics.size() >= static_cast<std::size_t>(kMostParts)) return;
      kind->nics.push_back({.name = device.name, .rail = static_cast<std::int32_t>(kind->nics.size())});
      nic = kind->nics.end() - 1;
    }
    if (nic->bandwidth == 0) nic->bandwidth = device.bandwidth;
    if (nic->pci.empty()) nic->pci = device.pci;
    if (nic->numa < 0)
      nic->numa = device.numa >= 0 && device.numa < domains ? device.numa : domains == 1 ? 0 : -1;
  }
}

}  // namespace tamaki
