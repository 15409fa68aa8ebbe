-- A job whose comment has the word "checkpoint" can be saved: it gets the QOS whose jobs may be
-- preempted, and is requeued. With "no-checkpoint" it is not requeued, and may not have that QOS.
-- The words of a comment are separated by blanks or commas; the comment is not changed. A job whose
-- comment has neither is as its user asked for.
local SAVEABLE = "saveable"

local function has_word(comment, wanted)
  for word in string.gmatch(comment or "", "[^%s,]+") do
    if word == wanted then return true end
  end
  return false
end

function slurm_job_submit(job, partitions, uid)
  if has_word(job.comment, "no-checkpoint") then
    if job.qos == SAVEABLE or has_word(job.comment, "checkpoint") then
      slurm.log_user("--comment=no-checkpoint: the QOS " .. SAVEABLE ..
                     " and the word checkpoint are for jobs that can be saved")
      return slurm.ERROR
    end
    job.requeue = 0
  elseif has_word(job.comment, "checkpoint") then
    if job.qos ~= nil and job.qos ~= SAVEABLE then
      slurm.log_user("--comment=checkpoint: the job is to have the QOS " .. SAVEABLE .. ", not " ..
                     job.qos)
      return slurm.ERROR
    end
    job.qos = SAVEABLE
    job.requeue = 1
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
