#!/bin/sh
# kafka-node.sh DIR PORT [CERTDIR]: one real Kafka broker (KRaft) on 127.0.0.1 in the background,
# its data in DIR. Waits until it answers and prints its pid, which is also in DIR/pid. To stop it,
# kill the pid; the same command starts it again on the same data, also after kill -9.
#   LIB=FOLDER      required: the broker's jars, Kafka 3.9 or 4.x, as `tests/support/servers/fetch
#                   kafka3` prints it
#   PORT plaintext, PORT+1 controller; with CERTDIR (../tls/make-certs.sh) PORT+2 SASL_SSL (PLAIN,
#   SCRAM-SHA-256, SCRAM-SHA-512) and PORT+3 SSL that wants a client certificate. PLAIN users
#   scriptorium and stranger, password plain-secret; SCRAM user scriptorium, scram-secret.
#   EXTRA="key=value ..."   more broker settings, without blanks;   PROPERTIES=FILE   more of them,
#                           any
#   JAVA=java  HEAP=256m  JAVA_OPTIONS="-D..."  TIER=1 (4 = full JIT: starts slower, is faster)
# kafka-cluster.sh sets NODE, ROLES and VOTERS.
set -eu
dir=$1; port=$2; certs=${3:-}; lib=${LIB:-}; java=${JAVA:-java}; node=${NODE:-1}; roles=${ROLES:-broker,controller}
version=
for jar in "$lib"/kafka_2.13-*.jar; do if [ -e "$jar" ]; then version=${jar##*/kafka_2.13-}; fi; done
[ -n "$version" ] || { echo "skipped: no Kafka in LIB=$lib; tests/support/servers/fetch kafka3 (or kafka4) gets one and prints its folder" >&2; exit 77; }
mkdir -p "$dir"; dir=$(cd "$dir" && pwd)
listeners="PLAINTEXT://127.0.0.1:$port"; map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
if [ -n "$certs" ]; then
  certs=$(cd "$certs" && pwd)
  listeners="$listeners,SASLSSL://127.0.0.1:$((port+2)),MTLS://127.0.0.1:$((port+3))"; map="$map,SASLSSL:SASL_SSL,MTLS:SSL"
fi
adv=$listeners
case $roles in *controller*) listeners="$listeners,CONTROLLER://127.0.0.1:$((port+1))";; esac
{
cat <<P
process.roles=$roles
node.id=$node
controller.quorum.voters=${VOTERS:-1@127.0.0.1:$((port+1))}
controller.listener.names=CONTROLLER
listeners=$listeners
advertised.listeners=$adv
listener.security.protocol.map=$map
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
num.partitions=1
num.network.threads=2
num.io.threads=2
default.replication.factor=1
min.insync.replicas=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
log.segment.bytes=16777216
log.cleaner.dedupe.buffer.size=4194304
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
P
case $version in 4.*) printf 'share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\nshare.coordinator.state.topic.num.partitions=1\n';; esac
if [ -n "$certs" ]; then cat <<P
ssl.keystore.type=PEM
ssl.keystore.location=$certs/server-keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=$certs/ca.pem
listener.name.mtls.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.saslssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.saslssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_scriptorium="plain-secret" user_stranger="plain-secret";
listener.name.saslssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.saslssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
P
fi
for kv in ${EXTRA:-}; do echo "$kv"; done
[ -z "${PROPERTIES:-}" ] || cat "$PROPERTIES"
} > "$dir/server.properties"
cat > "$dir/log4j.properties" <<'P'
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.logger.org.apache.kafka.common.utils.AppInfoParser=INFO
P
cat > "$dir/log4j2.properties" <<'P'
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
logger.a.name=kafka.server.KafkaRaftServer
logger.a.level=info
logger.b.name=org.apache.kafka.common.utils.AppInfoParser
logger.b.level=info
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
P
jopts="${JAVA_OPTIONS:-} -Xms64m -Xmx${HEAP:-256m} -XX:+UseSerialGC -XX:TieredStopAtLevel=${TIER:-1} -Djava.awt.headless=true -Dlog4j.configuration=file:$dir/log4j.properties -Dlog4j2.configurationFile=file:$dir/log4j2.properties"
if [ ! -e "$dir/data/meta.properties" ]; then
  scram=
  [ -z "$certs" ] || scram='--add-scram SCRAM-SHA-256=[name=scriptorium,password=scram-secret] --add-scram SCRAM-SHA-512=[name=scriptorium,password=scram-secret]'
  # shellcheck disable=SC2086
  "$java" $jopts -cp "$lib/*" kafka.tools.StorageTool format --cluster-id MkU3OEVBNTcwNTJENDM2Qg --config "$dir/server.properties" $scram > "$dir/format.log" 2>&1 || { cat "$dir/format.log" >&2; exit 1; }
fi
: > "$dir/out.log"
# shellcheck disable=SC2086
"$java" $jopts -cp "$lib/*" kafka.Kafka "$dir/server.properties" > "$dir/out.log" 2>&1 &
pid=$!; echo $pid > "$dir/pid"
answers() { # said once the broker is registered; its own metadata may lag behind by some 100 ms
  grep -q 'Kafka Server started' "$dir/out.log" || return 1
  command -v kcat > /dev/null || return 0
  kcat -q -L -b "127.0.0.1:$port" -m 2 > "$dir/metadata" 2>&1 && grep -q "broker $node at" "$dir/metadata"
}
i=0
until answers; do
  i=$((i+1))
  if [ $i -gt 600 ] || ! kill -0 $pid 2>/dev/null; then tail -40 "$dir/out.log" >&2; kill $pid 2>/dev/null; exit 1; fi
  sleep 0.2
done
echo $pid
