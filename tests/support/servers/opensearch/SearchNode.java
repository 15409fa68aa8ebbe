import java.nio.file.Files;
import java.nio.file.Path;
import org.codelibs.opensearch.runner.OpenSearchRunner;

/**
 * One OpenSearch node in this JVM with HTTP on 127.0.0.1:PORT, until standard input ends or SIGTERM. Started by search-node.sh.
 * usage: java -Xmx1g -cp 'lib/*' SearchNode.java HOME PORT [setting=value ...]
 * e.g. http.max_content_length=1mb (413), thread_pool.write.queue_size=1 (429), indexing_pressure.memory.limit=1mb (429)
 */
public final class SearchNode {
    public static void main(String[] args) throws Exception {
        Path home = Path.of(args[0]).toAbsolutePath();
        OpenSearchRunner node = new OpenSearchRunner();
        node.onBuild((number, s) -> {
            s.put("http.host", "127.0.0.1");
            s.put("http.port", args[1]);
            s.put("transport.host", "127.0.0.1");
            s.put("transport.port", "0");
            s.put("discovery.type", "single-node");
            s.putList("node.roles", "cluster_manager", "data", "ingest");
            s.put("cluster.routing.allocation.disk.threshold_enabled", "false");
            s.put("path.repo", home.resolve("repo").toString());
            for (int i = 2; i < args.length; i++) {
                String[] kv = args[i].split("=", 2);
                s.put(kv[0], kv[1]);
            }
        });
        node.build(OpenSearchRunner.newConfigs().clusterName("scriptorium-test").numOfNode(1).basePath(home.toString()));
        Thread stop = new Thread(() -> {
            try { node.close(); } catch (Exception e) { e.printStackTrace(); }
        });
        Runtime.getRuntime().addShutdownHook(stop);
        Files.writeString(home.resolve("ready"), "http://127.0.0.1:" + args[1] + "\n");
        System.out.println("ready http://127.0.0.1:" + args[1]);
        while (System.in.read() != -1) { } // the test harness holds the write end of this pipe
        System.exit(0);
    }
}
