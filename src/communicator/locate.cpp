// Where the ranks of a communicator are: which share a host, which NUMA domains and rails they are on, and, on a machine
// that the user has described (TAMAKI_MACHINE), the grid that they form. The first communicator of a job, which holds all
// its ranks, lays the job on the machine; the others are parts of that.

#include <map>
#include <utility>

#include "base/log.hpp"
#include "base/options.hpp"
#include "communicator/communicator_impl.hpp"
#include "topology/placement/files.hpp"
#include "topology/recognize.hpp"

namespace tamaki {
namespace {

/// Places of the job's ranks: from a file, else its hosts in order of their first rank are the machine's.
Result<Placement> lay_out(const Machine& machine, const std::string& file, const std::vector<std::int32_t>& host_of_rank) {
  if (!file.empty()) {
    Result<Placement> read = read_placement(machine, file);
    if (!read) return fail(read.error().code, "TAMAKI_PLACEMENT: " + read.error().message, Scope::communicator);
    if (read->size() < static_cast<std::int32_t>(host_of_rank.size()))
      return fail(Code::invalid_argument, "TAMAKI_PLACEMENT=" + file + " has " + std::to_string(read->size()) +
                                              " ranks, this job " + std::to_string(host_of_rank.size()), Scope::communicator);
    read->ranks.resize(host_of_rank.size());
    return read;
  }
  Placement placement;
  std::map<std::int32_t, std::int32_t> slots;
  for (const std::int32_t host : host_of_rank) {
    if (host >= machine.hosts)
      return fail(Code::invalid_argument, "TAMAKI_MACHINE has " + std::to_string(machine.hosts) +
                                              " hosts, the job's ranks are on more", Scope::communicator);
    placement.ranks.push_back(place_of_slot(machine, host, slots[host]++));
  }
  return placement;
}

}  // namespace

Status CommunicatorImpl::locate(const std::string& machine, const std::string& placement) {
  std::map<std::uint64_t, std::int32_t> hosts;
  for (const RankIdentity& identity : identities_)
    topology_.host_of_rank.push_back(
        hosts.try_emplace(identity.host, static_cast<std::int32_t>(hosts.size())).first->second);
  structure_ = std::to_string(hosts.size()) + (hosts.size() == 1 ? " host" : " hosts");
  if (machine.empty()) return {};
  std::shared_ptr<const Job::Ground> ground = job_->ground();
  if (ground == nullptr) {
    if (static_cast<int>(members_.size()) != job_->control().ranks()) return {};
    Result<Machine> described = machine_from(machine);
    if (!described) return fail(described.error().code, "TAMAKI_MACHINE: " + described.error().message, Scope::communicator);
    Result<Placement> laid = lay_out(*described, placement, topology_.host_of_rank);
    if (!laid) return pass(std::move(laid));
    ground = std::make_shared<Job::Ground>(Job::Ground{std::move(*described), std::move(*laid)});
    job_->set_ground(ground);
  }
  Recognized found = recognize(ground->machine, restrict_to(ground->placement, {members_.begin(), members_.end()}));
  // Who shares memory is what the ranks themselves say; a description that has it otherwise is no description of this job.
  if (found.topology.host_of_rank != topology_.host_of_rank) {
    log(Level::warn, "TAMAKI_MACHINE and TAMAKI_PLACEMENT put ranks on one host that are on several, or the other way "
                     "round: nothing but hosts is taken into account");
    return {};
  }
  topology_ = std::move(found.topology);
  structure_ = std::move(found.what);
  log(Level::info, std::to_string(members_.size()) + " ranks: " + structure_);
  return {};
}

}  // namespace tamaki
