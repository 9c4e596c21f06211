// Locks of run directories. Those of the record kind belong to processes: another job is a child of the test.
#include "distributed/process/run_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/core/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
namespace fs = std::filesystem;

namespace {

/// A process with a lock on `directory`, which holds it again when told to, and then ends: with 0, or an error's code.
class OtherJob {
 public:
  explicit OtherJob(const std::string& directory) {
    REQUIRE(::pipe(ready_) == 0);
    REQUIRE(::pipe(go_) == 0);
    pid_ = ::fork();
    if (pid_ != 0) {
      char byte = 0;
      REQUIRE(::read(ready_[0], &byte, 1) == 1);
      return;
    }
    int code = 0;
    try {
      Log log(false);
      RunLock lock(directory, log);
      char byte = 1;
      (void)!::write(ready_[1], &byte, 1);
      (void)!::read(go_[0], &byte, 1);
      lock.hold();
      (void)!::write(ready_[1], &byte, 1);
      (void)!::read(go_[0], &byte, 1);
    } catch (const Error& error) {
      code = error.exit_code();
    }
    ::_exit(code);
  }
  ~OtherJob() {
    for (const int end : {ready_[0], ready_[1], go_[0], go_[1]}) ::close(end);
  }
  OtherJob(const OtherJob&) = delete;
  OtherJob& operator=(const OtherJob&) = delete;

  pid_t pid() const { return pid_; }
  void go() const { REQUIRE(::write(go_[1], "g", 1) == 1); }
  void hold() const {
    go();
    char byte = 0;
    REQUIRE(::read(ready_[0], &byte, 1) == 1);
  }
  int code() const {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int ready_[2]{}, go_[2]{};
  pid_t pid_ = -1;
};

std::string refusal(const std::string& directory) {
  try {
    Log log(false);
    const RunLock lock(directory, log);
  } catch (const Error& error) {
    CHECK(error.exit_code() == 7);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("removing the lock that is seen lets no second job in", "[fault-33]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  fs::create_directory(run);
  const OtherJob first(run);
  const std::string holder = "is in use by process " + std::to_string(first.pid());
  CHECK_THAT(refusal(run), Contains(holder));
  fs::remove(run + "/lock");
  CHECK_THAT(refusal(run), Contains(holder));
  first.hold();
  fs::remove(run + "/.lock");  // the first one has made the other anew
  CHECK_THAT(refusal(run), Contains(holder));
  first.go();
  CHECK(first.code() == 0);
  CHECK(refusal(run) == "");
}

TEST_CASE("a job whose directory was removed and taken by another ends", "[fault-33]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  fs::create_directory(run);
  {
    const OtherJob first(run);
    fs::remove_all(run);
    first.hold();  // not taken by another process: it is made again, and locked
    CHECK_THAT(refusal(run), Contains("process " + std::to_string(first.pid())));
    first.go();
    CHECK(first.code() == 0);
  }
  const OtherJob first(run);
  fs::remove_all(run);
  fs::create_directory(run);
  Log log(false);
  const RunLock second(run, log);
  first.go();
  CHECK(first.code() == 7);
}

TEST_CASE("run lock: a job that came when locks were removed keeps its directory", "[fault-33]") {
  const TemporaryFolder folder;
  const OtherJob first(folder.path());
  for (const char* name : {"lock", ".lock"}) fs::remove(folder.path() + "/" + name);
  CHECK(refusal(folder.path()).empty());  // the second job: it comes and goes
  first.go();
  CHECK(first.code() == 7);
}

TEST_CASE("run lock: a moved directory is reported once and made again", "[fault-48]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), said = folder.file("log");
  fs::create_directory(run);
  Log log(true);
  log.append_to(said);
  RunLock lock(run, log);
  lock.hold();
  CHECK_THAT(contents_of(said), !Contains("moved"));
  fs::rename(run, folder.file("moved"));
  lock.hold();
  lock.hold();
  const std::string text = contents_of(said);
  CHECK_THAT(text, Contains("warning: " + run + " was moved away"));
  CHECK(text.find("moved away") == text.rfind("moved away"));
  CHECK(fs::exists(run + "/lock"));
  fs::remove_all(run);  // that is no move
  lock.hold();
  CHECK(contents_of(said) == text);
}
