/* Lines between machines of network namespaces: rate, delay, loss and cuts for each packet, and a count of every byte.

     line SEED DELAY_US LOSS NAME IPV4 UP_BITS DOWN_BITS [NAME IPV4 UP_BITS DOWN_BITS ...]

   Opens a TUN device NAME for each machine. A packet leaves its machine at the rate of its line up, in a queue of at most 200 ms, is lost or
   travels DELAY_US, and enters the other machine at the rate of its line down, through a queue as long. A rate of 0 is no limit.
   Commands on standard input, a line each, and each is answered by a line:
     cut NUMBER up|down 0|1    loses everything that the machine sends or gets, from now on (1) or no more (0)
     count                     for each machine: bytes and packets sent, bytes and packets that reached it, lost, dropped by queues
   Ends when standard input closes. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MOST_MACHINES = 64, MOST_BYTES = 2048, BURST = 64 };
static const double QUEUE_SECONDS = 0.2, LEAST_QUEUE_BYTES = 256e3;

typedef struct {
  double seconds_per_byte, free_at; /* of a line in one direction */
  int is_cut;
} Direction;

typedef struct {
  int device;
  uint32_t address;
  Direction up, down;
  uint64_t sent, packets_sent, received, packets_received, lost, dropped;
} Machine;

typedef struct {
  double at;
  uint64_t order;
  int to, is_entering, size; /* entering: it has yet to wait for the line down */
  unsigned char *data;
} Packet;

static Machine machines[MOST_MACHINES];
static int count;
static Packet *heap;
static size_t held, room;
static uint64_t orders;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static int is_before(const Packet *a, const Packet *b) {
  return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void put(Packet packet) {
  if (held == room && !(heap = realloc(heap, (room = room ? 2 * room : 1024) * sizeof *heap))) exit(1);
  size_t at = held++;
  packet.order = orders++;
  for (; at && is_before(&packet, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = packet;
}

static Packet take(void) {
  Packet first = heap[0], last = heap[--held];
  size_t at = 0, below;
  while ((below = 2 * at + 1) < held) {
    if (below + 1 < held && is_before(&heap[below + 1], &heap[below])) below++;
    if (!is_before(&heap[below], &last)) break;
    heap[at] = heap[below];
    at = below;
  }
  heap[at] = last;
  return first;
}

/* When a packet has passed a line that it comes to at some time; a negative time: the queue is full. */
static double passed(Direction *line, double at, int size) {
  double wait = line->free_at > at ? line->free_at - at : 0;
  if (wait > QUEUE_SECONDS && wait > LEAST_QUEUE_BYTES * line->seconds_per_byte) return -1;
  return line->free_at = at + wait + size * line->seconds_per_byte;
}

static int machine_at(uint32_t address) {
  for (int number = 0; number < count; number++)
    if (machines[number].address == address) return number;
  return -1;
}

static void send_from(Machine *from, const unsigned char *data, int size, double delay, double loss) {
  uint32_t address;
  if (size < 20 || data[0] >> 4 != 4) return; /* IPv6 announces itself where nobody listens */
  memcpy(&address, data + 16, 4);
  int to = machine_at(address);
  if (to < 0) return;
  from->sent += size, from->packets_sent++;
  double at = passed(&from->up, now(), size);
  if (at < 0) {
    from->dropped++;
    return;
  }
  if (from->up.is_cut || (loss > 0 && drand48() < loss)) {
    from->lost++;
    return;
  }
  unsigned char *copy = malloc(size);
  if (!copy) exit(1);
  memcpy(copy, data, size);
  put((Packet){.at = at + delay, .to = to, .is_entering = 1, .size = size, .data = copy});
}

static void arrive(Packet packet) {
  Machine *to = &machines[packet.to];
  if (packet.is_entering) {
    double at = passed(&to->down, packet.at, packet.size);
    if (at >= 0 && !to->down.is_cut) {
      packet.at = at, packet.is_entering = 0;
      put(packet);
      return;
    }
    at < 0 ? to->dropped++ : to->lost++;
  } else if (write(to->device, packet.data, packet.size) == packet.size) {
    to->received += packet.size, to->packets_received++;
  } else {
    to->dropped++;
  }
  free(packet.data);
}

static void answer(char *command) {
  int number, value;
  char direction[8];
  if (sscanf(command, "cut %d %7s %d", &number, direction, &value) == 3 && number >= 0 && number < count) {
    (strcmp(direction, "up") ? &machines[number].down : &machines[number].up)->is_cut = value;
    printf("done\n");
  } else {
    for (int each = 0; each < count; each++) {
      Machine *m = &machines[each];
      printf("%llu %llu %llu %llu %llu %llu ", (unsigned long long)m->sent, (unsigned long long)m->packets_sent,
             (unsigned long long)m->received, (unsigned long long)m->packets_received, (unsigned long long)m->lost,
             (unsigned long long)m->dropped);
    }
    printf("\n");
  }
  fflush(stdout);
}

static int opened(const char *name) {
  struct ifreq wanted = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  strncpy(wanted.ifr_name, name, IFNAMSIZ - 1);
  if (device < 0 || ioctl(device, TUNSETIFF, &wanted) < 0) {
    fprintf(stderr, "cannot make the device %s: %s\n", name, strerror(errno));
    exit(1);
  }
  return device;
}

static Direction line_of(const char *bits) {
  double rate = atof(bits);
  return (Direction){.seconds_per_byte = rate > 0 ? 8 / rate : 0};
}

int main(int argc, char **argv) {
  if (argc < 8 || argc % 4 || (argc - 4) / 4 > MOST_MACHINES) return 2;
  srand48(atol(argv[1]));
  double delay = 1e-6 * atof(argv[2]), loss = atof(argv[3]);
  struct pollfd polled[MOST_MACHINES + 1] = {{.fd = 0, .events = POLLIN}};
  for (char **each = argv + 4; *each; each += 4, count++) {
    machines[count] = (Machine){.device = opened(each[0]), .address = inet_addr(each[1])};
    machines[count].up = line_of(each[2]), machines[count].down = line_of(each[3]);
    polled[count + 1] = (struct pollfd){.fd = machines[count].device, .events = POLLIN};
  }
  printf("ready\n");
  fflush(stdout);
  unsigned char data[MOST_BYTES];
  for (;;) {
    while (held && heap[0].at <= now()) arrive(take());
    double wait = held ? heap[0].at - now() : 1.0;
    struct timespec longest = {.tv_nsec = wait > 0 ? (long)(1e9 * (wait < 0.9 ? wait : 0.9)) : 0};
    if (ppoll(polled, count + 1, &longest, NULL) < 0 && errno != EINTR) return 1;
    for (int each = 0; each < count; each++)
      for (int burst = 0; polled[each + 1].revents && burst < BURST; burst++) {
        int size = read(machines[each].device, data, sizeof data);
        if (size <= 0) break;
        send_from(&machines[each], data, size, delay, loss);
      }
    if (polled[0].revents) {
      static char command[256];
      int size = read(0, command, sizeof command - 1);
      if (size <= 0) return 0;
      command[size] = 0;
      answer(command);
    }
  }
}
