// Checkpoints that cannot be read because they are damaged. The job then continues from an older one.
#pragma once

#include <string>

#include "service/state/context.h"

namespace xlad::service {

// The number of attempts in a row in which the workers of a single host must find a checkpoint damaged. With the pauses
// between them (RetryPauseMs) it is read for the last time at least 15 s after the first finding.
inline constexpr int64_t kFindingsOfOneHost = 5;

// Records the damage that the worker reports with this message: the checkpoint from which the job's starting attempt
// begins is damaged, or a part of it no longer exists. Does nothing for other failures, or if the place of the
// checkpoint cannot be reached.
void NoteDamage(const Job& job, const WorkerId& worker, const TaskFailed& message, Attempt* attempt);

// Whether the checkpoint that the latest attempt found damaged is to be dropped. At least two attempts in a row must
// have found that, on different hosts. The findings on one host may be due to its disk, its memory or its path to the
// files, so they are enough only after kFindingsOfOneHost attempts.
bool IsConfirmedDamage(const Job& job);

// Drops the checkpoint that the latest attempts found damaged, so that the next attempt starts from the one before it.
// That is a checkpoint of the job itself or, if the job was resumed and has no checkpoint of its own, of the job that
// it continues. The files of a dropped checkpoint are kept. If there is no older checkpoint, drops nothing, because the
// files may be intact and only the workers' reads of them damaged, and returns why the job must end. Otherwise returns
// an empty text.
std::string DropDamaged(Context& context, Job* job);

}  // namespace xlad::service
