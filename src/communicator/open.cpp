// Making a communicator: identities, transports, links, plans.

#include <sodium.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "communicator/communicator_impl.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// What all ranks must have set alike, digested, with the texts to name in an error.
struct Agreement {
  std::uint64_t algorithms = 0, transports = 0, slot = 0;
  std::int32_t reproducible = 0, check = 0, lanes = 0;
  std::int32_t version = 0;
};

std::uint64_t digest(std::span<const std::byte> bytes) {
  static constexpr unsigned char key[crypto_shorthash_KEYBYTES] = {'t', 'a', 'm', 'a', 'k', 'i'};
  unsigned char out[crypto_shorthash_BYTES];
  crypto_shorthash(out, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), key);
  std::uint64_t value;
  std::memcpy(&value, out, sizeof value);
  return value == 0 ? 1 : value;
}
std::uint64_t digest(std::string_view text) { return digest(std::as_bytes(std::span(text.data(), text.size()))); }

std::string_view rules_option(const Options& options, Collective collective) {
  switch (collective) {
    case Collective::allreduce: return options.allreduce;
    case Collective::reduce: return options.reduce;
    case Collective::broadcast: return options.broadcast;
    case Collective::allgather: return options.allgather;
    case Collective::reduce_scatter: return options.reduce_scatter;
    case Collective::gather: return options.gather;
    case Collective::scatter: return options.scatter;
    case Collective::alltoall: return options.alltoall;
    default: return options.barrier;
  }
}

std::size_t slot_bytes_for(int most_ranks_on_a_host, std::uint64_t option) {
  return option == 0 ? default_slot_bytes(most_ranks_on_a_host) : (std::max<std::size_t>(option, 1024) + kLine - 1) / kLine * kLine;
}

/// Whether ranks of this host share cores: more ranks than cores altogether, or more ranks bound inside this rank's
/// cores than there are of them.
bool crowded(std::span<const RankIdentity> all, const RankIdentity& mine) {
  std::uint64_t together[16] = {};
  int on_host = 0, inside = 0, cores_together = 0, cores_mine = 0;
  for (const RankIdentity& other : all) {
    if (other.host != mine.host) continue;
    ++on_host;
    bool subset = true;
    for (int w = 0; w < 16; ++w) {
      together[w] |= other.core_mask[w];
      subset = subset && (other.core_mask[w] & ~mine.core_mask[w]) == 0;
    }
    inside += subset;
  }
  for (int w = 0; w < 16; ++w) {
    cores_together += std::popcount(together[w]);
    cores_mine += std::popcount(mine.core_mask[w]);
  }
  if (mine.cores < cores_mine) cores_together = std::min(cores_together, mine.cores);  // a quota of the container
  return on_host > cores_together || inside > cores_mine;
}

/// Whether ranks of this host are in other scheduling groups than this one.
bool scheduled_apart(std::span<const RankIdentity> all, const RankIdentity& mine) {
  return std::any_of(all.begin(), all.end(), [&](const RankIdentity& other) {
    return other.host == mine.host && other.scheduling_group != mine.scheduling_group;
  });
}

}  // namespace

Result<CommunicatorConfig> default_config() {
  const Result<const Options*> settings = options();
  if (!settings) return tl::unexpected<Error>(settings.error());
  CommunicatorConfig config;
  config.timeout_ms = static_cast<int>((*settings)->timeout_ms);
  config.reproducible = (*settings)->reproducible;
  config.progress_thread = (*settings)->progress_thread;
  config.check = (*settings)->check;
  config.transports = (*settings)->transports;
  return config;
}

Result<std::unique_ptr<Communicator>> Communicator::create(std::shared_ptr<Control> control, CommunicatorConfig config) {
  CommunicatorImpl::Origin origin;
  origin.id = digest(control->secret());
  origin.rank = control->rank();
  for (int r = 0; r < control->ranks(); ++r) origin.members.push_back(r);
  origin.exchange = [control](std::span<const std::byte> mine, std::span<std::byte> all) { return control->allgather(mine, all); };
  origin.config = std::move(config);
  origin.job = std::make_shared<Job>(std::move(control));
  return CommunicatorImpl::open(std::move(origin));
}

Result<std::unique_ptr<Communicator>> CommunicatorImpl::open(Origin origin) {
  std::unique_ptr<CommunicatorImpl> made(new CommunicatorImpl);
  if (Status opened = made->open_with(std::move(origin)); !opened) return pass(std::move(opened));
  return made;
}

CommunicatorImpl::~CommunicatorImpl() {
  stopping_.store(true, std::memory_order_release);
  if (progress_thread_.joinable()) {
    work_.fetch_add(1, std::memory_order_release);
    work_.notify_all();
    progress_thread_.join();
  }
  if (job_ != nullptr) job_->remove(id_);
  // The others hear that nothing more will come when all that was sent is on its way.
  active_transports_.clear();
  unopened_.clear();
  transports_.clear();
  if (job_ != nullptr) job_->control().leave(id_);
  for (auto& [handle, shared] : registrations_) {
    delete static_cast<char*>(handle);
    // The memory may be gone by now, which is an error only where tmkDeregister is called.
    if (shared != 0) static_cast<void>(unshare_pages(shared));
  }
}

Status CommunicatorImpl::open_with(Origin origin) {
  const Result<const Options*> settings = options();
  if (!settings) return tl::unexpected<Error>(settings.error());
  register_for_bells();
  job_ = std::move(origin.job);
  id_ = origin.id;
  rank_ = origin.rank;
  members_ = std::move(origin.members);
  config_ = std::move(origin.config);
  limits_.single_copy_min = (*settings)->single_copy_min;
  share_registered_ = (*settings)->register_memory == "share";
  lanes_option_ = (*settings)->lanes;
  send_busy_.assign(members_.size(), 0);
  receive_busy_.assign(members_.size(), 0);
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    const std::string_view option = rules_option(**settings, collective);
    // The communicator's own choice is for the collectives that have it; the options' rules are per collective.
    Result<std::vector<SizeRule>> rules = parse_rules(collective, option);
    Status good;
    if (!rules)
      good = tl::unexpected<Error>(rules.error());
    else
      good = load_files(collective, &*rules);
    if (!good) {
      return fail(good.error().code, rules_variable(collective) + ": " + good.error().message, Scope::communicator);
    }
    rules_.push_back(std::move(*rules));
  }
  if (!config_.algorithm.empty()) {
    std::string first_error;
    bool any = false;
    for (int c = 0; c < kCollectives; ++c) {
      Result<std::vector<SizeRule>> rules = parse_rules(static_cast<Collective>(c), config_.algorithm);
      const Status loaded = rules ? load_files(static_cast<Collective>(c), &*rules) : Status();
      if (rules && loaded) {
        rules_[static_cast<std::size_t>(c)] = std::move(*rules);
        any = true;
      } else if (first_error.empty() && !loaded) {
        first_error = loaded.error().message;
      } else if (first_error.empty()) {
        first_error = rules.error().message;
      }
    }
    if (!any) return fail(Code::invalid_argument, first_error, Scope::communicator);
  }

  RankIdentity mine = own_identity();
  if (job_->ground() == nullptr) find_surroundings(&mine);
  identities_.resize(members_.size());
  if (Status s = origin.exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(identities_))); !s) return s;
  if (members_.size() == static_cast<std::size_t>(job_->control().ranks())) job_->control().set_identities(identities_);
  std::map<std::uint64_t, int> per_host;
  for (const RankIdentity& identity : identities_) ++per_host[identity.host];
  int most = 1;
  for (const auto& [host, count] : per_host) most = std::max(most, count);
  slot_bytes_ = slot_bytes_for(most, (*settings)->slot_bytes);
  spin_us_option_ = (*settings)->spin_us;
  wait_policy_ = WaitPolicy::make(crowded(identities_, mine), spin_us_option_);
  wait_policy_.apart = scheduled_apart(identities_, mine);

  if (Status s = agree(origin.exchange); !s) return s;
  if (Status s = locate(**settings, origin.exchange); !s) return s;
  if (Status s = open_transports(origin.exchange); !s) return s;
  job_->add(id_, members_, [this](const Failure& failure) {
    {
      const std::lock_guard lock(failure_mutex_);
      if (!failed_.load(std::memory_order_relaxed)) failure_ = failure;
      failed_.store(true, std::memory_order_release);
    }
    if (bell_ != nullptr) ring_bell(*bell_, bell_shared_);
  }, [this] { close_at_exit(); });
  if (config_.progress_thread) {
    progress_thread_ = std::thread([this] { progress_thread_main(); });
    ::pthread_setname_np(progress_thread_.native_handle(), "tmk-progress");
  }
  return {};
}

/// Other threads may still be inside; then nothing is touched, and the process ends as it would without us.
void CommunicatorImpl::close_at_exit() {
  if (!gate_.try_enter()) return;
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failed_.load(std::memory_order_relaxed)) failure_ = {Code::aborted, -1, "the process is exiting"};
    failed_.store(true, std::memory_order_release);
  }
  bell_ = nullptr;
  active_transports_.clear();
  unopened_.clear();
  transports_.clear();
  gate_.leave();
}

Status CommunicatorImpl::agree(const Exchange& exchange) {
  Agreement mine;
  std::string rules = config_.algorithm;
  for (const auto& list : rules_)
    for (const SizeRule& rule : list) {
      rules += "|" + rule.algorithm;
      for (const std::int64_t part : {rule.lanes, rule.pieces, rule.radix}) rules += "/" + std::to_string(part);
      if (rule.loaded != nullptr) rules += "/" + std::to_string(rule.loaded->digest);
      rules += ":" + std::to_string(rule.from) + "-" + std::to_string(rule.to);
    }
  if (const Result<const Options*> settings = options()) rules += "|" + (*settings)->machine;
  mine.algorithms = digest(rules);
  mine.transports = digest(config_.transports);
  mine.slot = slot_bytes_;
  mine.reproducible = config_.reproducible;
  mine.check = config_.check;
  mine.lanes = static_cast<std::int32_t>(lanes_option_);
  mine.version = 1;
  std::vector<Agreement> all(members_.size());
  if (Status s = exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))); !s) return s;
  for (std::size_t r = 1; r < all.size(); ++r) {
    const Agreement &a = all[0], &b = all[r];
    const char* what = a.version != b.version         ? "library version"
                       : a.transports != b.transports ? "transports"
                       : a.slot != b.slot             ? "slot_bytes"
                       : a.reproducible != b.reproducible ? "reproducible"
                       : a.check != b.check               ? "check"
                       : a.lanes != b.lanes               ? "lanes"
                       : a.algorithms != b.algorithms     ? "algorithm rules or machine"
                                                          : nullptr;
    if (what != nullptr)
      return tamaki::fail(Code::mismatch, "rank " + std::to_string(r) + " and rank 0 have different settings: " + what, Scope::communicator);
  }
  return {};
}

Status CommunicatorImpl::open_transports(const Exchange& exchange) {
  std::string_view names = config_.transports;
  if (names.empty())
    return tamaki::fail(Code::invalid_argument, "TAMAKI_TRANSPORTS or the communicator's transports=\"\" names none; there are " + transport_names());
  while (!names.empty()) {
    const auto comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
    const auto entries = all_transports();
    const auto entry = std::find_if(entries.begin(), entries.end(), [&](const TransportEntry& e) { return e.name == name; });
    if (entry == entries.end())
      return tamaki::fail(Code::invalid_argument, "TAMAKI_TRANSPORTS or the communicator's transports=\"" + config_.transports + "\": \"" +
                                                      std::string(name) + "\" does not exist; there are " + transport_names());
    TransportContext context{.rank = rank_, .ranks = identities_, .communicator = id_, .secret = job_->control().secret(),
                             .slot_bytes = slot_bytes_, .depth = 8, .own_bell = &private_bell_};
    Result<std::unique_ptr<Transport>> opened = entry->open(context);
    if (!opened) return tl::unexpected<Error>(opened.error());
    if (Status ready = (*opened)->setup(exchange); !ready) return ready;
    transports_.push_back(std::move(*opened));
  }
  for (auto& transport : transports_) {
    Bell* bell = transport->own_bell();
    if (bell == nullptr) continue;
    several_bells_ = bell_ != nullptr;
    if (bell_ == nullptr || transport->name() == "shm") {
      bell_ = bell;
      bell_shared_ = transport->name() != "inproc";
    }
  }
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    std::string reasons;
    bool reached = false;
    for (auto& transport : transports_) {
      std::string why;
      reached = reached || transport->reaches(peer, &why);
      reasons += (reasons.empty() ? "" : "; ") + std::string(transport->name()) + ": " + why;
    }
    if (!reached)
      return tamaki::fail(Code::system, "no transport reaches " + describe(peer) + " (" + reasons + ")", Scope::communicator);
  }
  return {};
}

Result<Link*> CommunicatorImpl::link_to(int peer, int channel) {
  for (auto& transport : transports_) {
    if (!transport->reaches(peer)) continue;
    Result<Link*> link = transport->connect(peer, channel);
    if (!link) return link;
    if (!(*link)->open && std::find(unopened_.begin(), unopened_.end(), *link) == unopened_.end()) unopened_.push_back(*link);
    if ((*link)->needs_flush && std::find(active_transports_.begin(), active_transports_.end(), transport.get()) == active_transports_.end()) {
      active_transports_.push_back(transport.get());
      transport->wait_descriptors(&wait_descriptors_);
      if (!wait_descriptors_.empty()) wait_policy_ = wait_policy_.with_descriptors(spin_us_option_);
    }
    return link;
  }
  return tl::unexpected<Error>(Error{Code::internal, Scope::communicator, "no transport reaches rank " + std::to_string(peer)});
}

Question CommunicatorImpl::question_for(const Call& call) const {
  const bool pairwise = call.uneven && (call.collective == Collective::gather || call.collective == Collective::scatter ||
                                        call.collective == Collective::alltoall);
  return {.collective = call.collective, .bytes = message_bytes(call, ranks()), .ranks = ranks(), .root = call.root,
          .commutative = !reduces(call.collective) || call.op.op != ReduceOp::user || call.op.commutative,
          .reproducible = config_.reproducible, .uneven = call.uneven, .pairwise = pairwise,
          .lanes = static_cast<int>(lanes_option_), .topology = &topology_,
          .rules = &rules_[static_cast<std::size_t>(call.collective)], .costs = costs_.get()};
}

Program CommunicatorImpl::message_program(const Call& call, int channel) const {
  Builder builder({.algorithm = "message", .collective = Collective::send_recv, .ranks = ranks(), .rank = rank_});
  auto lane = builder.lane(channel);
  if (call.destination >= 0) lane.send(in(0), to(call.destination));
  else lane.recv(from(call.source), out(0));
  return builder.take();
}

Result<CachedPlan*> CommunicatorImpl::make_plan(const Call& call, const PlanKey& key) {
  Program program;
  bool direct = true, direct_in_place = true;
  if (call.collective == Collective::send_recv) {
    program = message_program(call, key.channel);
  } else {
    const Result<Choice> choice = select(question_for(call));
    if (!choice) return tl::unexpected<Error>(choice.error());
    if (choice->loaded != nullptr) {
      program = choice->loaded->programs[static_cast<std::size_t>(rank_)];
      direct = choice->loaded->direct;
      direct_in_place = choice->loaded->direct_in_place;
    } else {
      program = choice->algorithm->build(topology_, choice->problem, rank_);
      direct = choice->algorithm->direct_safe;
      direct_in_place = direct && choice->algorithm->direct_in_place_safe;
      if (!choice->algorithm->in_place_safe) direct_in_place = false;
    }
  }
  PlanRequest request{
      .program = &program,
      .shape = shape_of(call, ranks(), rank_),
      .op = call.op,
      .direct = direct,
      .direct_in_place = direct_in_place,
      .tag = tag_of(call),
      .slot_bytes = slot_bytes_,
      .title = title_of(call, call.collective == Collective::send_recv ? std::string_view() : std::string_view(program.algorithm)),
      .connect = [this](int peer, int channel) { return link_to(peer, channel); },
  };
  request.op.type = call.type;
  Result<Plan> plan = compile_plan(request);
  if (!plan) return tl::unexpected<Error>(plan.error());
  workspace_.fit(*plan, slot_bytes_);
  return plans_.insert(key, std::move(*plan), [this](const CachedPlan* cached) { return in_use(cached); });
}

bool CommunicatorImpl::in_use(const CachedPlan* cached) const {
  const auto uses = [cached](const RequestState* state) { return state->plan == cached; };
  return cached == last_plan_ || std::any_of(collectives_.begin(), collectives_.end(), uses) ||
         std::any_of(messages_.begin(), messages_.end(), uses);
}

Result<std::string> CommunicatorImpl::algorithm_for(const Call& call) {
  if (call.collective == Collective::send_recv) return std::string("message");
  const Result<Choice> choice = select(question_for(call));
  if (!choice) return tl::unexpected<Error>(choice.error());
  return choice->name();
}

std::vector<std::pair<std::string, std::string>> CommunicatorImpl::facts() const {
  std::vector<std::pair<std::string, std::string>> facts;
  int hosts = 0;
  for (int host : topology_.host_of_rank) hosts = std::max(hosts, host + 1);
  facts.emplace_back("ranks", std::to_string(ranks()));
  facts.emplace_back("hosts", std::to_string(hosts));
  facts.emplace_back("structure", structure_);
  facts.emplace_back("slot bytes", std::to_string(slot_bytes_));
  facts.emplace_back("plans", std::to_string(plans_.size()));
  for (const auto& transport : transports_) {
    int reached = 0;
    for (int peer = 0; peer < ranks(); ++peer)
      if (peer != rank_ && transport->reaches(peer)) ++reached;
    facts.emplace_back(std::string(transport->name()) + " reaches", std::to_string(reached));
    for (auto& [name, value] : transport->facts()) facts.emplace_back(std::string(transport->name()) + " " + name, value);
  }
  return facts;
}

}  // namespace tamaki
