// What Java's spymemcached is told by the server on a port of this machine, in both protocols.
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.internal.OperationFuture;
import net.spy.memcached.transcoders.SerializingTranscoder;

class AskSpymemcached {
  static void told(String what, Object... told) {
    List<String> all = new ArrayList<>();
    for (Object one : told) {
      String text = String.valueOf(one);
      all.add(text.substring(0, Math.min(text.length(), 100)));
    }
    System.out.println(what + ": " + String.join(", ", all));
  }

  // What comes of it, and what the server has said, if it is an error.
  static String outcome(Future<?> asked) throws Exception {
    try {
      Object got = asked.get();
      String status = asked instanceof OperationFuture<?> future ? " " + future.getStatus().getMessage() : "";
      return got + status;
    } catch (ExecutionException e) {
      return e.getCause().getClass().getSimpleName() + " " + e.getCause().getMessage();
    }
  }

  static String failure(Callable<?> asked) {
    try {
      return String.valueOf(asked.call());
    } catch (Exception e) {
      return e.getClass().getSimpleName() + " " + e.getMessage();
    }
  }

  static void ask(Protocol protocol, int port) throws Exception {
    System.out.println("== " + protocol);
    SerializingTranscoder plain = new SerializingTranscoder();
    plain.setCompressionThreshold(Integer.MAX_VALUE);
    MemcachedClient c = new MemcachedClient(
        new ConnectionFactoryBuilder().setProtocol(protocol).setOpTimeout(20000)
            // A failure ends the program.
            .setDaemon(true).build(),
        List.of(new InetSocketAddress("127.0.0.1", port)));
    told("flush", outcome(c.flush()));
    told("get of none", c.get("a"), c.gets("a"));
    told("set", outcome(c.set("a", 0, "one")), c.get("a"));
    told("types", outcome(c.set("i", 0, 5)), c.get("i"), outcome(c.set("l", 0, 1L << 40)), c.get("l"),
        outcome(c.set("b", 0, true)), c.get("b"), outcome(c.set("d", 0, new Date(0))), ((Date) c.get("d")).getTime(),
        outcome(c.set("f", 0, 1.5)), c.get("f"), outcome(c.set("o", 0, new ArrayList<>(List.of(1, "two")))), c.get("o"));
    told("many", new TreeMap<>(c.getBulk("a", "no", "i", "b")));
    told("add", outcome(c.add("a", 0, "x")), outcome(c.add("added", 0, "x")), c.get("added"));
    told("replace", outcome(c.replace("a", 0, "uno")), outcome(c.replace("no", 0, "x")), c.get("a"));
    CASValue<Object> seen = c.gets("a");
    told("cas", seen.getValue(), c.cas("a", seen.getCas(), "due"), c.cas("a", seen.getCas(), "tre"), c.cas("no", 1, "x"),
        c.get("a"));
    told("append", outcome(c.append("a", "!")), outcome(c.prepend("a", "<")), outcome(c.append("no", "!")), c.get("a"));
    told("number", outcome(c.set("n", 0, "10")), c.incr("n", 5), c.decr("n", 100), c.incr("no", 1), c.decr("no", 1));
    told("number made", c.incr("made", 1, 7), c.incr("made", 3, 7), c.decr("less", 1, 9), c.get("made"));
    told("no number", failure(() -> c.incr("a", 1)), outcome(c.asyncIncr("a", 1L)));
    told("touch", outcome(c.touch("a", 100)), outcome(c.touch("no", 100)));
    if (protocol == Protocol.BINARY)
      told("get and touch", c.getAndTouch("a", 100).getValue(), c.getAndTouch("no", 100));
    told("delete", outcome(c.delete("a")), outcome(c.delete("a")), c.get("a"));
    byte[] bytes = new byte[258];
    for (int n = 0; n < bytes.length; n++)
      bytes[n] = (byte) n;
    told("bytes", outcome(c.set("bytes", 0, bytes)), Arrays.equals((byte[]) c.get("bytes"), bytes));
    told("letters", outcome(c.set("schlüssel", 0, "größe ☃")), c.get("schlüssel"));
    String large = "x".repeat(1_000_000);
    told("large", outcome(c.set("large", 0, large, plain)), large.equals(c.get("large")));
    told("compressed", outcome(c.set("z", 0, large.repeat(3))), large.repeat(3).equals(c.get("z")));
    told("too large", outcome(c.set("larger", 0, large.repeat(2), new SerializingTranscoder(1 << 30) {
      { setCompressionThreshold(Integer.MAX_VALUE); }
    })), c.get("larger"));
    told("a long key", outcome(c.set("k".repeat(250), 0, "x")), c.get("k".repeat(250)),
        failure(() -> c.get("k".repeat(251))));
    List<Future<?>> all = new ArrayList<>();
    for (int n = 0; n < 1000; n++)
      all.add(c.set("many" + n, 0, n));
    for (Future<?> one : all)
      one.get();
    List<String> keys = new ArrayList<>();
    for (int n = 0; n < 1100; n++)
      keys.add("many" + n);
    Map<String, Object> got = c.getBulk(keys);
    told("a thousand", got.size(), got.get("many999"));
    told("expires", outcome(c.set("e", 2, "x")), c.get("e"), outcome(c.set("past", -1, "x")), c.get("past"));
    Thread.sleep(3100);
    told("has expired", c.get("e"));
    told("statistics", c.getStats().values().iterator().next().containsKey("cmd_get"), c.getVersions().size());
    told("flush", outcome(c.flush()), c.get("i"));
    c.shutdown();
  }

  public static void main(String[] words) throws Exception {
    int port = Integer.parseInt(words[0]);
    ask(Protocol.TEXT, port);
    ask(Protocol.BINARY, port);
  }
}
