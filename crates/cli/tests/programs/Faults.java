import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A machine that handles signals of its own: null pointers and ends of stacks are found by faults, threads stop by them.
 * Meanwhile buffers outside of its heap, which are blocks of malloc, take more than there is DRAM for. Argument: their
 * MiB. Prints what it found. */
public class Faults {
    int value = 3;

    static int read(Faults from) {
        return from.value;
    }

    static int deeper(int depth) {
        return deeper(depth + 1) + 1;
    }

    static long at(long place) {
        return place * 0x9e3779b97f4a7c15L >> 7;
    }

    public static void main(String[] words) throws Exception {
        Faults one = new Faults();
        long sum = 0;
        // Often enough to be compiled, with checks that are faults.
        for (int i = 0; i < 300000; i++)
            sum += read(one);
        System.out.println("sum: " + sum);

        int mib = Integer.parseInt(words[0]);
        ByteBuffer[] buffers = new ByteBuffer[mib];
        Thread[] threads = new Thread[2];
        long[] wrong = new long[threads.length];
        for (int t = 0; t < threads.length; t++) {
            int mine = t;
            threads[t] = new Thread(() -> {
                for (int i = mine; i < mib; i += threads.length) {
                    buffers[i] = ByteBuffer.allocateDirect(1 << 20);
                    for (int word = 0; word < 1 << 17; word += 64)
                        buffers[i].putLong(word * 8, at((long) i << 17 | word));
                }
                for (int i = mine; i < mib; i += threads.length)
                    for (int word = 0; word < 1 << 17; word += 64)
                        if (buffers[i].getLong(word * 8) != at((long) i << 17 | word))
                            wrong[mine]++;
            });
            threads[t].start();
        }
        int nulls = 0, overflows = 0;
        for (int i = 0; i < 3000; i++) {
            try {
                sum += read(i % 3 == 0 ? null : one);
            } catch (NullPointerException e) {
                nulls++;
            }
            if (i % 1000 == 0) {
                System.gc();
                try {
                    deeper(0);
                } catch (StackOverflowError e) {
                    overflows++;
                }
            }
        }
        for (Thread thread : threads)
            thread.join();
        System.out.println("nulls: " + nulls + ", overflows: " + overflows + ", wrong: " + (wrong[0] + wrong[1]));

        // The kernel takes from a buffer and puts into another.
        Path file = Files.createTempFile(Path.of("."), "faults", ".bin");
        long lost = 0;
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            for (int i = 0; i < 8; i++)
                channel.write(buffers[i].duplicate());
            channel.position(0);
            ByteBuffer back = ByteBuffer.allocateDirect(1 << 20);
            for (int i = 0; i < 8; i++) {
                back.clear();
                while (back.hasRemaining() && channel.read(back) > 0) {
                }
                if (!back.flip().equals(buffers[i].duplicate()))
                    lost++;
            }
        }
        Files.delete(file);
        System.out.println("by the kernel, lost: " + lost);
    }
}
