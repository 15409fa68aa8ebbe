#!/bin/sh
# kafka-cluster.sh DIR PORT [CERTDIR]: three Kafka nodes (KRaft) on 127.0.0.1 in the background.
# Node N has its data in DIR/N, its pid in DIR/N/pid and its listeners from PORT+10*(N-1) on, as in
# kafka-node.sh, which also says what LIB, EXTRA, JAVA and HEAP are. Waits until all answer, prints
# the pids. New topics have 3 replicas and min.insync.replicas=2.
#   Only node 1 is a controller: with 2 and 3 dead it can still shrink the in-sync set, so producers
#   get NOT_ENOUGH_REPLICAS.
#   QUORUM=3: all three are controllers; with two dead nobody can, and requests time out instead. To
#   be chosen at the first start.
#   NODES="2 3": starts only these, on what they have.
set -eu
here=$(cd "$(dirname "$0")" && pwd); dir=$1; port=$2; certs=${3:-}
VOTERS=1@127.0.0.1:$((port+1))
[ "${QUORUM:-1}" = 1 ] || VOTERS=$VOTERS,2@127.0.0.1:$((port+11)),3@127.0.0.1:$((port+21))
EXTRA="default.replication.factor=3 min.insync.replicas=2 offsets.topic.replication.factor=3 transaction.state.log.replication.factor=3 transaction.state.log.min.isr=2 ${EXTRA:-}"
export VOTERS EXTRA
waits=
for n in ${NODES:-1 2 3}; do
  mkdir -p "$dir/$n"
  roles=broker,controller; [ "$n" = 1 ] || [ "${QUORUM:-1}" != 1 ] || roles=broker
  NODE=$n ROLES=$roles "$here/kafka-node.sh" "$dir/$n" $((port+10*(n-1))) ${certs:+"$certs"} > "$dir/$n/start" 2>&1 & waits="$waits $n:$!"
done
rc=0
for w in $waits; do wait "${w#*:}" || rc=$?; cat "$dir/${w%%:*}/start"; done
exit $rc
