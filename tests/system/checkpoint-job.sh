#!/bin/bash
#OAR -n long
#OAR -t idempotent
#OAR -l nodes=1/core=1,walltime=00:10:00
#OAR --checkpoint 60
# A job script in the form that OAR's users write for checkpoints. It knows nothing of
# scriptorium-checkpointd but the names of files.
JOB=${OAR_JOB_ID:-$SLURM_JOB_ID}
REQUESTS=${REQUESTS:-/var/lib/checkpoints}
RESUME_TIMEOUT=30

# shellcheck disable=SC2317
save() {
  echo "Caught checkpoint signal at: $(date +%T)"
  echo -e "$PROGRAM\n$(pwd)" > "$REQUESTS/$JOB.checkpoint"
}
trap save SIGUSR2

if [ -e checkpoint_ok ]; then
  # An earlier life was saved: resume it
  rm -f checkpoint/pidfile
  pwd > "$REQUESTS/$JOB.resume"
  waited=0
  while [ ! -e checkpoint/pidfile ]; do
    sleep 0.5
    waited=$((waited + 1))
    [ $waited -gt $((2 * RESUME_TIMEOUT)) ] && echo "no resume within $RESUME_TIMEOUT s"
  done
  PROGRAM=$(cat checkpoint/pidfile)
else
  # The first life
  nohup ./program >> output 2>&1 < /dev/null &
  PROGRAM=$!
fi

# `wait` ends when a trap runs, so poll
while [ -e "/proc/$PROGRAM" ]; do
  sleep 0.2
done
while [ ! -e checkpoint_ok ]; do
  sleep 0.2
done

# The scheduler submits the job again
exit 99
