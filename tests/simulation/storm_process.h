// The processes of StormWorkers, their tasks, and the gangs of tasks that run an attempt together.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "tests/simulation/storm_workers.h"

namespace xlad::simulation {

// Sets the attempt of a launched task in a message.
template <typename Message>
void Name(const LaunchTask& launch, Message* message) {
  message->set_job_id(launch.job_id());
  message->set_attempt(launch.attempt());
  message->set_generation(launch.generation());
}

struct StormWorkers::Task {
  LaunchTask launch;
  std::shared_ptr<Gang> gang;
  bool is_first = false;  // Whether the task has device 0 and reports the metrics.
  bool is_quick = false;  // Whether the task runs quickly compiled code.
  bool ready = false, started = false;
  int64_t lease_until = -1;
  int64_t stop_at = -1;
  std::set<int64_t> checkpoint_steps;         // The steps that CheckpointAt messages have named.
  std::map<int64_t, CheckpointShard> shards;  // The written but uncommitted shards, by step.
  int committed_checks = 0;                   // How often in a row CheckNotices has found a committed one.
  int start_checks = 0;                       // How often in a row it has found a ready task without news of the start.
  int64_t saved_step = -1;                    // The last step whose state was written, or the first step.
  int64_t skipped_step = -1;                  // The last step whose state could not be written.
  bool has_read = false;      // Whether the task has read the state from which the attempt starts.
  bool is_writing = false;    // Whether a slow disk still writes the state before `saved_step`.
  int64_t next_write_ns = 0;  // After a failure, a state that must be stored is written again at this time.
  std::deque<StepMetrics> metrics;            // The metrics that are not acknowledged.
  // The message about the task's end. It is repeated until the coordinator tells the worker to forget the attempt.
  std::optional<WorkerMessage> end;
};

struct StormWorkers::Gang {
  TaskKey key;
  LaunchTask launch;
  // Keyed by the number of the process, so that the order is the same in a replay.
  std::map<int, std::pair<Process*, Task*>> members;
  int64_t launched_ns = 0;  // The time of the first launch.
  std::map<std::string, int64_t> gone_since_ns;  // Workers whose host has lost power, and when.
  int64_t finished = 0;
  uint64_t contents = 0;  // The contents of the state before step `finished`.
  int64_t stalled_since_ns = -1;
  int64_t quick_steps = 0;  // The steps on quickly compiled code after the storm, while all were connected.
  bool scheduled = false, over = false;
  std::string suspect;  // The process that ended the gang.
};

struct StormWorkers::Process {
  int number = 0;
  int host = 0;
  std::string id;
  uint64_t incarnation = 0;
  bool replaces_code = true;  // False for an older version.
  int64_t life = 0;  // The number of times that the process was started.
  bool up = false;
  bool stays_away = false;  // Whether the process stays down until the end of the storm.
  bool is_gone = false;     // Whether it never comes back.
  bool lost_power = false;  // Whether it ended because its host has lost power.
  int64_t stopped_until_ns = 0;
  int64_t trouble_ns = 0;  // The last time at which the process started or died, or a path was cut or restored.
  bool data_cut = false;   // Whether its peers cannot reach it.
  bool cut_up = false, cut_down = false, refused = false;
  int64_t misreads_until_ns = 0;  // Until this time, it finds damage in all checkpoints that it reads.
  int64_t disk_full_until_ns = 0, disk_slow_until_ns = 0;
  int64_t cut_since_ns = 0;
  int64_t connection = 0;
  bool registered = false;
  bool leaving = false;
  int64_t term = 0;
  std::map<TaskKey, Task> tasks;
  std::map<TaskKey, LaunchTask> waiting;  // The launches that wait for the ends of tasks of other owners.
  std::deque<WorkerMessage> held_up;  // The messages that a cut holds back, in order.
  std::deque<CoordinatorMessage> held_down;
  int64_t last_up_ns = 0, last_down_ns = 0;  // The arrival times of the last messages, so that messages stay in order.
};

}  // namespace xlad::simulation
