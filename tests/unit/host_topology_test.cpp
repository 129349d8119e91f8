// Hosts from hwloc XML, NCCL XML and sysfs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/xml.hpp"
#include "topology/discover/discover.hpp"
#include "topology/parse/description.hpp"
#include "topology/parse/hwloc.hpp"
#include "topology/parse/nccl.hpp"

namespace tamaki {
namespace {

std::string fixture(const std::string& name) {
  return std::string(TAMAKI_SOURCE_DIR) + "/tests/fixtures/topology/" + name;
}

Machine good(const std::string& text) {
  Result<Machine> machine = machine_from(text);
  EXPECT_TRUE(machine) << machine.error().message;
  return machine ? *machine : Machine{};
}

std::string nccl_error(const std::string& text) {
  const Result<Machine> machine = machine_from_nccl_xml(text, "f");
  return machine ? "no error" : machine.error().message;
}

double bandwidth(const HostKind& kind, Part a, Part b) {
  for (const PartLink& link : kind.links)
    if ((link.a == a && link.b == b) || (link.a == b && link.b == a)) return link.bandwidth;
  return 0;
}

constexpr Part::Kind kGpu = Part::Kind::gpu, kNic = Part::Kind::nic, kHub = Part::Kind::hub,
                     kNuma = Part::Kind::numa;

TEST(HostTopology, HwlocDgx) {
  const Machine machine = good(fixture("dgx_h100.hwloc.xml"));
  const HostKind& kind = machine.kinds[0];
  EXPECT_EQ(machine.name, "dgx");
  ASSERT_EQ(kind.sockets.size(), 2u);
  EXPECT_EQ(kind.sockets[1].model, "Intel(R) Xeon(R) Platinum 8480C");
  ASSERT_EQ(kind.numa.size(), 2u);
  EXPECT_EQ(kind.numa[1], (NumaDomain{1, 56, 1099511627776.0, 0}));
  ASSERT_EQ(kind.gpus.size(), 8u);
  ASSERT_EQ(kind.nics.size(), 8u);
  ASSERT_EQ(kind.hubs.size(), 8u);
  for (std::int32_t i = 0; i < 8; ++i) {
    const auto u = static_cast<std::size_t>(i);
    EXPECT_EQ(kind.gpus[u].numa, i / 4);
    EXPECT_EQ(kind.nics[u].name, "mlx5_" + std::to_string(i));
    EXPECT_EQ(kind.nics[u].gpu, i) << "the GPU under the same switch";
    EXPECT_NEAR(bandwidth(kind, {kGpu, i}, {kHub, i}), 63.0e9, 0.1e9);
    EXPECT_NEAR(bandwidth(kind, {kHub, i}, {kNuma, i / 4}), 63.0e9, 0.1e9);
  }
  EXPECT_EQ(kind.slots, 8);
}

TEST(HostTopology, HwlocWithoutAccelerators) {
  const Machine laptop = good(fixture("laptop.hwloc.xml"));
  EXPECT_TRUE(laptop.kinds[0].gpus.empty()) << "a laptop's graphics are no accelerator";
  ASSERT_EQ(laptop.kinds[0].nics.size(), 1u);
  EXPECT_EQ(laptop.kinds[0].nics[0].name, "enp0s31f6");
  EXPECT_EQ(laptop.kinds[0].numa[0].cores, 4);  // of 2 threads
  EXPECT_EQ(laptop.slots(), 4);

  const Machine a64fx = good(fixture("a64fx.hwloc.xml"));
  ASSERT_EQ(a64fx.kinds[0].numa.size(), 4u);
  for (const NumaDomain& numa : a64fx.kinds[0].numa) EXPECT_EQ(numa, (NumaDomain{0, 12, 8589934592.0, 0}));

  const HostKind epyc = good(fixture("epyc_nps4.hwloc.xml")).kinds[0];
  ASSERT_EQ(epyc.numa.size(), 8u);
  EXPECT_EQ(epyc.numa[3].socket, 0);
  EXPECT_EQ(epyc.numa[4].socket, 1);
  ASSERT_EQ(epyc.nics.size(), 3u);
  EXPECT_EQ(epyc.nics[0].numa, 2);
  EXPECT_EQ(epyc.nics[1].numa, 5);
  ASSERT_EQ(epyc.hubs.size(), 1u) << "only the bridge above two ports joins anything";
  EXPECT_GT(bandwidth(epyc, {kNuma, 0}, {kNuma, 1}), bandwidth(epyc, {kNuma, 0}, {kNuma, 4}));
}

TEST(HostTopology, NcclFiles) {
  const HostKind dgx = good(fixture("dgx_h100.nccl.xml")).kinds[0];
  ASSERT_EQ(dgx.gpus.size(), 8u);
  EXPECT_EQ(dgx.gpus[0].compute_capability, 90);
  EXPECT_EQ(dgx.numa[0].cores, 56);
  EXPECT_EQ(dgx.hubs.back().kind, Hub::Kind::nvswitch);
  EXPECT_DOUBLE_EQ(bandwidth(dgx, {kGpu, 3}, {kHub, 8}), 450e9);  // 18 links of four switches
  EXPECT_DOUBLE_EQ(dgx.nics[5].bandwidth, 50e9);
  EXPECT_EQ(dgx.nics[5].gpu, 5);
  EXPECT_NEAR(bandwidth(dgx, {kNic, 5}, {kHub, 5}), 63e9, 0.1e9);

  const HostKind dgx1 = good(fixture("dgx1_v100.nccl.xml")).kinds[0];
  EXPECT_DOUBLE_EQ(bandwidth(dgx1, {kGpu, 0}, {kGpu, 3}), 50e9);
  EXPECT_DOUBLE_EQ(bandwidth(dgx1, {kGpu, 0}, {kGpu, 1}), 25e9);
  EXPECT_DOUBLE_EQ(bandwidth(dgx1, {kGpu, 0}, {kGpu, 7}), 0);
  double all = 0;
  for (const PartLink& link : dgx1.links) all += link.kind == PartLink::Kind::nvlink ? link.bandwidth : 0;
  EXPECT_DOUBLE_EQ(all, 8 * 6 * 25e9 / 2);

  const HostKind p4d = good(fixture("p4d.nccl.xml")).kinds[0];
  ASSERT_EQ(p4d.nics.size(), 4u);
  EXPECT_EQ(p4d.nics[1].gpu / 2, 1) << "one of the two GPUs under its switch";
  EXPECT_DOUBLE_EQ(p4d.nics[1].bandwidth, 12.5e9);
}

TEST(HostTopology, NcclGoesRound) {
  for (const std::string& name :
       {fixture("dgx_h100.nccl.xml"), fixture("dgx1_v100.nccl.xml"), fixture("p4d.nccl.xml")}) {
    const Machine machine = good(name);
    EXPECT_EQ(good(machine_to_nccl_xml(machine)), machine) << name;
  }
  // What began elsewhere has all that the format holds after one way, and stays the same from then on.
  for (const std::string& name :
       {std::string("dgx_h100"), std::string("fugaku:4x6x4"), std::string("rails:2x8"),
        std::string("laptop"), fixture("dgx_h100.hwloc.xml"), fixture("epyc_nps4.hwloc.xml")}) {
    const Machine machine = good(name);
    const Machine once = good(machine_to_nccl_xml(machine));
    const HostKind &a = machine.kinds[0], &b = once.kinds[0];
    EXPECT_EQ(a.gpus.size(), b.gpus.size()) << name;
    EXPECT_EQ(a.nics.size(), b.nics.size()) << name;
    EXPECT_EQ(a.numa.size(), b.numa.size()) << name;
    for (std::size_t i = 0; i < b.nics.size(); ++i) {
      EXPECT_EQ(a.nics[i].name, b.nics[i].name) << name;
      EXPECT_EQ(a.nics[i].bandwidth, b.nics[i].bandwidth) << name;
      EXPECT_EQ(a.nics[i].gpu, b.nics[i].gpu) << name << " NIC " << i;
    }
    for (std::size_t i = 0; i < b.numa.size(); ++i) EXPECT_EQ(a.numa[i].cores, b.numa[i].cores) << name;
    EXPECT_EQ(good(machine_to_nccl_xml(once)), once) << name;
  }
}

TEST(HostTopology, EveryFixtureGoesRoundAsJson) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixture(""))) {
    if (entry.path().extension() != ".xml") continue;
    const Machine machine = good(entry.path().string());
    EXPECT_EQ(good(machine_to_json(machine)), machine) << entry.path();
    ++count;
  }
  EXPECT_EQ(count, 7);
}

TEST(HostTopology, HostileNcclFilesNameFileLineAndAttribute) {
  const auto in_cpu = [](const std::string& inside) {
    return "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"f\">\n" + inside + "</cpu>\n</system>\n";
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(nccl_error(text).find(part), std::string::npos)
        << "\"" << nccl_error(text) << "\" lacks \"" << part << "\"";
  };
  expect("<system>", "f:1: no element found");
  expect("<system>\n</cpu>", "f:2: mismatched tag");
  expect("<system></system>", "f:1: <system> has no <cpu>");
  expect("<topology></topology>", "f:1: <topology> is not NCCL's <system>");
  expect(in_cpu("<pci class=\"0x030200\"/>\n"), "f:3: <pci> has no attribute busid");
  expect(in_cpu("<pci busid=\"a\" link_width=\"-1\"/>\n"),
         "f:3: <pci> attribute link_width=\"-1\" is not a number in 0..64");
  expect(in_cpu("<pci busid=\"a\" link_speed=\"fast\"/>\n"), "f:3: <pci> attribute link_speed=\"fast\"");
  expect(in_cpu("<pci busid=\"a\"/>\n<pci busid=\"a\"/>\n"),
         "f:4: <pci> busid a is there twice; first in line 3");
  expect(in_cpu("<pci busid=\"a\">\n<gpu sm=\"80\"/></pci>\n"), "f:4: <gpu> has no attribute dev");
  expect(in_cpu("<pci busid=\"a\"><gpu dev=\"1e9\"/></pci>\n"), "<gpu> attribute dev=\"1e9\"");
  expect(in_cpu("<pci busid=\"a\"><gpu dev=\"0\"/></pci>\n<pci busid=\"b\"><gpu dev=\"0\"/></pci>\n"),
         "f:4: <gpu> dev 0 is there twice");
  expect(in_cpu("<pci busid=\"a\"><gpu dev=\"0\">\n<nvlink target=\"q\" count=\"1\" "
                "tclass=\"0x030200\"/></gpu></pci>\n"),
         "f:4: <nvlink> target \"q\" is no GPU");
  expect(in_cpu("<pci busid=\"a\"><gpu dev=\"0\">\n<nvlink target=\"a\" count=\"0\"/></gpu></pci>\n"),
         "<nvlink> attribute count=\"0\"");
  expect(in_cpu("<nic>\n<net dev=\"0\" speed=\"x\"/></nic>\n"), "f:4: <net> attribute speed=\"x\"");
  expect("<system>\n<cpu affinity=\"xyz\"/></system>", "f:2: <cpu> attribute affinity=\"xyz\" is no mask");
  expect("<!DOCTYPE s [<!ENTITY a \"b\">\n<!ENTITY c \"&a;&a;\">]><system>&c;</system>", "declares entity");
  std::string deep = "<system>", many = "<system>";
  for (int i = 0; i < 100; ++i) deep += "<pci>";
  for (int i = 0; i < 1'000'001; ++i) many += "<a/>";
  expect(deep, "elements 65 deep");
  expect(many + "</system>", "more than 1000000 elements");
  EXPECT_FALSE(machine_from_hwloc_xml("<topology version=\"2.0\">\n</topology>", "f"));
  EXPECT_FALSE(
      machine_from_hwloc_xml("<topology version=\"2.0\"><object type=\"Machine\"/></topology>", "f"));
  EXPECT_FALSE(machine_from_hwloc_xml("<other/>", "f"));
}

TEST(HostTopology, TruncatedHwlocFilesAreRefused) {
  std::ifstream file(fixture("laptop.hwloc.xml"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  ASSERT_GT(text.size(), 1000u);
  for (std::size_t size = 0; size + 20 < text.size(); size += 97)
    EXPECT_FALSE(machine_from_hwloc_xml(std::string_view(text).substr(0, size), "t")) << size;
}

TEST(HostTopology, MutatedFilesAreReadOrRefused) {
  // Bytes changed, cut out and doubled at random: whatever comes of it, a machine that is given passes its
  // checks.
  for (const auto& entry : std::filesystem::directory_iterator(fixture(""))) {
    if (entry.path().extension() != ".xml") continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    std::mt19937 random(5);
    int read = 0, refused = 0;
    for (int round = 0; round < 60; ++round) {
      std::string mutated = text;
      for (unsigned change = 0; change <= random() % 3; ++change) {
        const std::size_t at = random() % mutated.size(),
                          length = std::min<std::size_t>(1 + random() % 40, mutated.size() - at);
        switch (random() % 4) {
          case 0:
            mutated[at] = static_cast<char>(random());
            break;
          case 1:
            mutated.erase(at, length);
            break;
          case 2:
            mutated.insert(at, mutated.substr(at, length));
            break;
          default:
            mutated.replace(at, 1, 1, static_cast<char>('0' + random() % 10));
        }
      }
      const Result<Machine> machine = machine_from(mutated);
      if (machine) {
        ++read;
        EXPECT_TRUE(check(*machine));
      } else {
        ++refused;
        EXPECT_FALSE(machine.error().message.empty());
      }
    }
    EXPECT_GT(read, 0) << entry.path();
    EXPECT_GT(refused, 0) << entry.path();
  }
}

TEST(HostTopology, XmlEscapes) {
  const Result<XmlElement> element = parse_xml("<a b=\"" + xml_escape("<&>\"'x") + "\"/>", "t");
  ASSERT_TRUE(element);
  EXPECT_EQ(*element->attribute("b"), "<&>\"'x");
  EXPECT_EQ(element->attribute("c"), nullptr);
}

TEST(HostTopology, SysfsCompletesAndAdds) {
  namespace fs = std::filesystem;
  char name[] = "/tmp/tamaki-sysfs-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const fs::path root = name;
  const auto put = [&](const fs::path& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  };
  put("devices/0000:1b:00.0/numa_node", "1");
  fs::create_directories(root / "class/infiniband/mlx5_0");
  fs::create_directory_symlink(root / "devices/0000:1b:00.0", root / "class/infiniband/mlx5_0/device");
  put("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  fs::create_directories(root / "class/net/ib0");
  fs::create_directory_symlink(root / "devices/0000:1b:00.0", root / "class/net/ib0/device");
  put("class/net/ib0/type", "32");
  put("class/net/lo/type", "772");
  put("class/net/eth0/type", "1");
  put("class/net/eth0/speed", "10000");
  put("class/net/eth1/operstate", "down");
  put("class/net/veth0/speed", "-1");

  HostKind kind;
  kind.numa = {{}, {}};
  kind.nics = {{.name = "mlx5_0"}};
  read_sysfs_nics(root.string(), &kind);
  ASSERT_EQ(kind.nics.size(), 3u) << "ib0 is mlx5_0's, lo and what is down are left out";
  EXPECT_DOUBLE_EQ(kind.nics[0].bandwidth, 50e9);
  EXPECT_EQ(kind.nics[0].numa, 1);
  EXPECT_EQ(kind.nics[0].pci, "0000:1b:00.0");
  EXPECT_EQ(kind.nics[1].name, "eth0");
  EXPECT_DOUBLE_EQ(kind.nics[1].bandwidth, 1.25e9);
  EXPECT_EQ(kind.nics[2].name, "veth0");
  EXPECT_EQ(kind.nics[2].bandwidth, 0);
  fs::remove_all(root);
  EXPECT_EQ(parse_verbs_rate("100 Gb/sec (4X EDR)"), 12.5e9);
  EXPECT_EQ(parse_verbs_rate("fast"), 0);
}

TEST(HostTopology, ThisMachine) {
  const Result<Machine> machine = this_machine();
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_TRUE(check(*machine));
  std::int32_t cores = 0;
  for (const NumaDomain& numa : machine->kinds[0].numa) cores += numa.cores;
  EXPECT_GE(cores, 1);
  EXPECT_EQ(good(machine_to_json(*machine)), *machine);
  EXPECT_LT(numa_of_this_process(), static_cast<std::int32_t>(machine->kinds[0].numa.size()));
  if (machine->kinds[0].numa.size() == 1) {
    EXPECT_EQ(numa_of_this_process(), 0);
  }
}

}  // namespace
}  // namespace tamaki
