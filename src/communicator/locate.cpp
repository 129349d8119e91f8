// Where the ranks of a communicator are: which share a host, which NUMA domains and rails they are on, and, on a machine
// that the user has described (TAMAKI_MACHINE), the grid that they form. The first communicator of a job, which holds all
// its ranks, lays the job on the machine (on what the ranks have found where nothing is described) and reads the tuning
// table; the others are parts of that. What the algorithms cost there is what choices are made from.

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "base/options.hpp"
#include "base/secret.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/found_machine.hpp"
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

/// The job's tuning table: that of rank 0, whichever files the others see.
Result<TuningTable> CommunicatorImpl::common_tuning(const Options& options, const Exchange& exchange) {
  constexpr std::size_t kPart = 4096;
  const std::string path = tuning_path(options.tuning);
  std::string text;
  std::optional<TuningTable> own;  // of rank 0, the others parse what it hands out
  if (!path.empty()) {
    Result<std::optional<std::string>> read = read_tuning_text(path);
    Status good = read ? Status() : tl::unexpected<Error>(read.error());
    if (read && *read) text = std::move(**read);
    if (rank_ == 0 && read && *read) {
      Result<TuningTable> table = parse_tuning(text, path);
      if (table)
        own = std::move(*table);
      else
        good = tl::unexpected<Error>(table.error());
    }
    if (rank_ == 0 && !good) log(Level::warn, good.error().message + "; no tuning table is used");
    if (rank_ == 0 && !own) text.clear();
  }
  struct Digest {
    std::uint64_t value = 0, bytes = 0;
  };
  const Digest mine{digest_of(text), text.size()};
  std::vector<Digest> all(members_.size());
  if (Status s = exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))); !s) return pass(std::move(s));
  const bool same = std::all_of(all.begin(), all.end(), [&](const Digest& d) { return d.value == all[0].value && d.bytes == all[0].bytes; });
  if (!same) {  // rare: files that differ between hosts, or one that another job has just written
    std::string first;
    std::vector<std::byte> part(kPart), parts(kPart * members_.size());
    while (first.size() < all[0].bytes) {
      const std::size_t bytes = std::min<std::size_t>(kPart, all[0].bytes - first.size());
      if (rank_ == 0) std::memcpy(part.data(), text.data() + first.size(), bytes);
      if (Status s = exchange(part, parts); !s) return pass(std::move(s));
      first.append(reinterpret_cast<const char*>(parts.data()), bytes);
    }
    text = std::move(first);
  }
  if (text.empty()) return TuningTable();
  if (own) return std::move(*own);
  return parse_tuning(text, path.empty() ? "tuning table of rank 0" : path);
}

/// By the first communicator, which has all ranks of the job: lays it on its machine.
Status CommunicatorImpl::lay_ground(const Options& options, const Exchange& exchange) {
  auto ground = std::make_shared<Job::Ground>();
  ground->described = !options.machine.empty();
  if (ground->described) {
    Result<Machine> described = machine_from(options.machine);
    if (!described) return fail(described.error().code, "TAMAKI_MACHINE: " + described.error().message, Scope::communicator);
    Result<Placement> laid = lay_out(*described, options.placement, topology_.host_of_rank);
    if (!laid) return pass(std::move(laid));
    ground->machine = std::move(*described);
    ground->placement = std::move(*laid);
  } else {
    FoundMachine found = found_machine(identities_);
    ground->machine = std::move(found.machine);
    ground->placement = std::move(found.placement);
  }
  ground->machine_hash = hash_of(ground->machine);
  Result<TuningTable> tuning = common_tuning(options, exchange);
  if (!tuning) return pass(std::move(tuning));
  ground->tuning = std::move(*tuning);
  job_->set_ground(std::move(ground));
  return {};
}

Status CommunicatorImpl::locate(const Options& options, const Exchange& exchange) {
  std::map<std::uint64_t, std::int32_t> hosts;
  for (const RankIdentity& identity : identities_)
    topology_.host_of_rank.push_back(
        hosts.try_emplace(identity.host, static_cast<std::int32_t>(hosts.size())).first->second);
  structure_ = std::to_string(hosts.size()) + (hosts.size() == 1 ? " host" : " hosts");
  if (job_->ground() == nullptr) {
    if (static_cast<int>(members_.size()) != job_->control().ranks()) return {};
    if (Status laid = lay_ground(options, exchange); !laid) return laid;
  }
  const std::shared_ptr<const Job::Ground> ground = job_->ground();
  Placement placement = restrict_to(ground->placement, {members_.begin(), members_.end()});
  Recognized found = recognize(ground->machine, placement);
  // Who shares memory is what the ranks themselves say; a description that has it otherwise is no description of this job.
  if (found.topology.host_of_rank != topology_.host_of_rank) {
    log(Level::warn, "TAMAKI_MACHINE and TAMAKI_PLACEMENT put ranks on one host that are on several, or the other way "
                     "round: nothing but hosts is taken into account");
    return {};
  }
  topology_ = found.topology;
  structure_ = std::move(found.what);
  log(Level::info, std::to_string(members_.size()) + " ranks: " + structure_);
  const CostOptions options_of_costs{.slot_bytes = slot_bytes_,
                                     .alike = ground->described ? CostOptions().alike : CostOptions::kGuessedAlike};
  costs_ = job_->costs(Costs::key_of(ground->machine_hash, placement, slot_bytes_), [&] {
    auto made = std::make_shared<Costs>(ground->machine, std::move(placement), std::move(found.topology), options_of_costs);
    apply_tuning(ground->tuning, made.get());
    return made;
  });
  return {};
}

}  // namespace tamaki
