#include "transports/transport.hpp"

namespace tamaki {

#define TAMAKI_TRANSPORT(name) Result<std::unique_ptr<Transport>> open_##name(const TransportContext&);
#include "transports/transports.def"
#undef TAMAKI_TRANSPORT

namespace {
constexpr TransportEntry kAll[] = {
#define TAMAKI_TRANSPORT(name) {#name, &open_##name},
#include "transports/transports.def"
#undef TAMAKI_TRANSPORT
};
}  // namespace

std::span<const TransportEntry> all_transports() { return kAll; }

std::string transport_names() {
  std::string names;
  for (const TransportEntry& entry : kAll) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

Status Transport::get(Link& link, std::byte*, std::uint64_t, std::size_t) {
  return fail(Code::internal, std::string(name()) + " cannot read memory of rank " + std::to_string(link.peer), Scope::communicator);
}
Status Transport::put(Link& link, const std::byte*, std::uint64_t, std::size_t) {
  return fail(Code::internal, std::string(name()) + " cannot write memory of rank " + std::to_string(link.peer), Scope::communicator);
}

}  // namespace tamaki
