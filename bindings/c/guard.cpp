#include "guard.hpp"

#include <cstdio>
#include <deque>
#include <exception>
#include <new>

namespace tamaki::c {

thread_local int t_group_depth = 0;

namespace {

struct ThreadTexts {
  std::string last = "no error";
  std::deque<std::string>
      views;  // copies of communicators' texts given out since the last failure of this thread
};

// The texts end with their thread; calls that come even later (destructors of other thread-local objects,
// atexit in the main thread) find t_over and go without.
thread_local bool t_over = false;
struct ThreadTextsOwner {
  ThreadTexts texts;
  ~ThreadTextsOwner() { t_over = true; }
};
ThreadTexts* thread_texts() {
  if (t_over) return nullptr;
  thread_local ThreadTextsOwner owner;
  return &owner.texts;
}

}  // namespace

tmkResult_t report(const char* function, tmkComm* comm, const Error& error) noexcept {
  try {
    std::string text = function;
    if (comm != nullptr) text += comm->name;
    text += ": ";
    text += error.message;
    if (comm != nullptr) {
      const std::lock_guard lock(comm->mutex);
      comm->last_error = text;
    }
    if (ThreadTexts* texts = thread_texts(); texts != nullptr) {
      texts->views.clear();
      texts->last = std::move(text);
    }
  } catch (...) {
    // No memory for the text: the code still says what happened.
  }
  return static_cast<tmkResult_t>(error.code);
}

tmkResult_t report_handle(const char* function, tmkComm* comm) noexcept {
  try {
    char text[96];
    if (comm == nullptr)
      std::snprintf(text, sizeof text, "comm is NULL");
    else
      std::snprintf(text, sizeof text, "comm=%p is not a communicator, or was destroyed",
                    static_cast<void*>(comm));
    return report(function, nullptr, {Code::invalid_argument, Scope::request, text});
  } catch (...) {
    return tmkInvalidArgument;
  }
}

tmkResult_t report_exception(const char* function, tmkComm* comm) noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return report(function, comm, {Code::out_of_memory, Scope::request, "out of memory"});
    } catch (const std::exception& e) {
      return report(function, comm,
                    {Code::internal, Scope::request, std::string("unexpected: ") + e.what()});
    } catch (...) {
      return report(function, comm, {Code::internal, Scope::request, "unexpected foreign exception"});
    }
  } catch (...) {
    return tmkOutOfMemory;  // while the text was made
  }
}

void fail_open_group(tmkResult_t result) noexcept {
  if (t_group_depth == 0) return;
  try {
    Group::current().fail({static_cast<Code>(result), Scope::request, last_error(nullptr)});
  } catch (...) {
    // Only for lack of memory; the caller still gets the error of this call.
  }
}

const char* last_error(tmkComm* comm) noexcept {
  try {
    ThreadTexts* texts = thread_texts();
    if (texts == nullptr) return "no error (the thread has ended)";
    if (comm == nullptr) return texts->last.c_str();
    if (!alive(comm)) return "the handle given to tmkGetLastError is not a communicator, or was destroyed";
    const std::lock_guard lock(comm->mutex);
    if (comm->last_error.empty()) return "no error";
    for (const std::string& view : texts->views)
      if (view == comm->last_error) return view.c_str();
    return texts->views.emplace_back(comm->last_error).c_str();
  } catch (...) {
    return "out of memory";
  }
}

Status refuse_in_group() {
  if (t_group_depth == 0) return {};
  return fail(Code::invalid_usage,
              "called between tmkGroupStart and tmkGroupEnd, where only operations may stand");
}

tl::unexpected<Error> null_argument(const char* name) {
  return fail(Code::invalid_argument, std::string(name) + " is NULL");
}

}  // namespace tamaki::c
