// Reads a topic with Kafka's own Java client, as a consumer that shares no code with the sink:
//   java -cp 'LIB/*' Consume.java BROKERS TOPIC
// One line a message: PARTITION JAVA-PARTITION OFFSET KEY SHA256-OF-VALUE HEADER=VALUE...
// JAVA-PARTITION is the one that Java's producers would choose for the key.
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Utils;

public class Consume {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            var partitions = consumer.partitionsFor(arguments[1]).stream()
                .map(p -> new TopicPartition(p.topic(), p.partition())).collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            var ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    var digest = MessageDigest.getInstance("SHA-256").digest(record.value());
                    var line = new StringBuilder(record.partition() + " "
                        + Utils.toPositive(Utils.murmur2(record.key())) % partitions.size() + " " + record.offset() + " "
                        + new String(record.key(), "UTF-8") + " " + HexFormat.of().formatHex(digest));
                    for (var header : record.headers()) line.append(" " + header.key() + "=" + new String(header.value(), "UTF-8"));
                    System.out.println(line);
                }
            }
        }
    }
}
