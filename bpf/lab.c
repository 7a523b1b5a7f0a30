// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The lab's own programs: the frame generator, and the reference programs that run at the receiving end.
 *
 * The generator runs in BPF_PROG_TEST_RUN's live frame mode. The properties of a flow are constants (`flow`, which
 * internal/lab fills in before the program is loaded), so the verifier removes the branches that a flow does not need. All
 * numbers in `flow` and `header` that end up in a frame are in network byte order; checksums are sums of 16-bit words
 * as this machine loads them, which RFC 1071, section 2(B), shows to be independent of byte order.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define HEADER_MAX 256 /* bytes of each frame that are written anew */
#define FLOWS_MAX 8    /* flows in a mix */
#define CAPTURE_MAX 2048
#define SPIN_MAX 512 /* reads of the clock in one wait */

/* How an address or a port is chosen for a packet. */
enum choice {
	CHOICE_FIXED, /* as in the header template */
	CHOICE_RANDOM,
	CHOICE_CYCLE,
	CHOICE_LIST, /* one after the other, from a list that user space shuffled */
};

/* struct address says how one of the two addresses is chosen. An address has `words` 32-bit words. Only the bits in
 * mask vary; base has these bits clear. */
struct address {
	__u32 choice;
	__u32 at;      /* offset in the frame */
	__u32 entries; /* of the list */
	__u32 base[4];
	__u32 mask[4];
};

/* struct field16 is a 16-bit field: a port, an ICMP echo's identifier or sequence number, or a DNS message's identifier. */
struct field16 {
	__u16 at;
	__u16 first; /* host byte order */
	__u32 count; /* values; 1: fixed, as in the template */
};

struct recipe {
	__u32 ifindex; /* frames leave here; 0: the frame is passed to the caller (tests) */
	__u32 length;  /* bytes of header to write */
	__u32 trim;    /* bytes by which this flow's frames are shorter than the longest of the mix */
	__u32 words;   /* of an address: 1 for IPv4, 4 for IPv6 */
	struct address source, destination;
	struct field16 sport, dport, id;
	__u64 tcp_random;  /* mask of the random bits in sequence and acknowledgment number, or in a payload of UDP */
	__u32 tcp_at;      /* where these are */
	__u32 id_at;       /* IPv4 identification, random; 0: as in the template */
	__u32 ip_check_at; /* 0: no IPv4 header */
	__u32 ip_sum;      /* of the template's IPv4 header */
	__u32 l4_check_at; /* 0: left as it is in the template */
	__u32 l4_zero;     /* written for a checksum of 0, which to UDP means "none" (RFC 768) */
	__u32 l4_sum;      /* of the template's L4 header, payload and pseudo header */
	__u32 l4_pseudo;   /* whether the checksum covers the addresses: all but ICMP over IPv4 */
	/* Pacing of bursts of packets, in 1/256 ns; interval 0: none. */
	__u64 interval; /* between bursts */
	__u64 gap;      /* at least this between bursts, also when catching up */
	__u64 lag;      /* bursts later than this are given up, not caught up with */
	__u64 patience; /* to wait for a burst in one run of the program, at most for some 10 microseconds */
	__u64 burst;    /* packets in each */
};

const volatile struct recipe flow = {};
const volatile __u64 header[HEADER_MAX / 8] = {};

/* A mix: mix_bound[i] is the upper bound of flow i's share of [0, 2^32). */
const volatile __u32 mix_flows = 0;
const volatile __u32 mix_bound[FLOWS_MAX] = {};

/* State. A generator runs on one thread, so nothing here is atomic. */
__u64 limit = 0; /* packets to send; user space may lower it at any time */
__u64 sent = 0;
__u64 next_due = 0; /* 1/256 ns on the monotonic clock, like not_before */
__u64 not_before = 0;
__u64 left = 0; /* packets of this burst */
__u64 seed = 1; /* never 0 */
__u64 source_position = 0;
__u64 destination_position = 0;

/* The lists: one array element that holds all addresses, so that neighbors share cache lines. Sizes are set at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 16);
} sources SEC(".maps"), destinations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, FLOWS_MAX);
	__uint(key_size, 4);
	__uint(value_size, 4);
} flows SEC(".maps");

/* next_random is xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016). */
static __always_inline __u64 next_random(void)
{
	__u64 x = seed;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	seed = x;
	return x * 0x2545F4914F6CDD1DULL;
}

/* below returns a random number in [0, n), by multiplication (Lemire, 2019) without the rejection step: the bias is
 * below n / 2^32. */
static __always_inline __u32 below(__u32 n)
{
	return (next_random() >> 32) * n >> 32;
}

/* wait_until spins until a time, but no longer than flow.patience, and returns the present time. The wait costs the receiver
 * nothing. An early XDP_DROP would return the unused page, and contend with the receiver for the lock of the page pool. */
static __always_inline __u64 wait_until(__u64 when)
{
	__u64 now = bpf_ktime_get_ns() << 8, end = now + flow.patience;

	for (int i = 0; i < SPIN_MAX && now < when && now < end; i++)
		now = bpf_ktime_get_ns() << 8;
	return now;
}

/* due says whether it is time for another packet, and counts it. */
static __always_inline int due(void)
{
	if (sent >= limit)
		return 0;
	if (left) {
		left--;
	} else if (flow.interval) {
		__u64 when = next_due > not_before ? next_due : not_before;
		__u64 now = wait_until(when);

		if (now < when)
			return 0;
		if (now - next_due > flow.lag)
			next_due = now;
		next_due += flow.interval;
		not_before = now + flow.gap;
		left = flow.burst - 1;
	}
	sent++;
	return 1;
}

/* fold turns a sum of 16 or 32-bit words into the checksum to write. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* write_header copies the template. */
static __always_inline void write_header(void *data)
{
	__u32 length = flow.length, rest = length & ~7u;

#pragma unroll
	for (__u32 i = 0; i < HEADER_MAX / 8; i++)
		if (length >= (i + 1) * 8)
			*(__u64 *)(data + i * 8) = header[i];
	if (length & 4)
		*(__u32 *)(data + rest) = *(const volatile __u32 *)((const volatile void *)header + rest);
	rest = length & ~3u;
	if (length & 2)
		*(__u16 *)(data + rest) = *(const volatile __u16 *)((const volatile void *)header + rest);
	rest = length & ~1u;
	if (length & 1)
		*(__u8 *)(data + rest) = *(const volatile __u8 *)((const volatile void *)header + rest);
}

/* address_word returns word i of the next address under a prefix. */
static __always_inline __u32 address_word(const volatile struct address *a, __u32 i, __u32 words, __u64 position)
{
	if (a->choice == CHOICE_RANDOM)
		return a->base[i] | ((next_random() >> 32) & a->mask[i]);
	if (i + 1 == words)
		return a->base[i] | (bpf_htonl((__u32)position) & a->mask[i]);
	if (i + 2 == words)
		return a->base[i] | (bpf_htonl((__u32)(position >> 32)) & a->mask[i]);
	return a->base[i];
}

/* write_word writes word i of an address, from the list if there is one, and returns it. */
static __always_inline __u64 write_word(void *data, const volatile struct address *a, __u32 *list, __u32 i,
					__u64 position)
{
	__u32 words = flow.words, word;

	if (i >= words)
		return 0;
	word = list ? list[i] : address_word(a, i, words, position);
	*(__u32 *)(data + a->at + i * 4) = word;
	return word;
}

/* write_address writes an address that is not fixed, and returns the sum of its words. */
static __always_inline __u64 write_address(void *data, const volatile struct address *a, void *list, __u64 *position)
{
	__u64 sum = 0, at = *position;
	__u32 zero = 0, *from = 0;

	if (a->choice == CHOICE_FIXED)
		return 0;
	if (a->choice == CHOICE_LIST) {
		if (at >= a->entries)
			at = 0;
		from = bpf_map_lookup_elem(list, &zero);
		if (!from)
			return 0;
		from += at * flow.words;
	}
	*position = at + 1;
	sum += write_word(data, a, from, 0, at);
	sum += write_word(data, a, from, 1, at);
	sum += write_word(data, a, from, 2, at);
	sum += write_word(data, a, from, 3, at);
	return sum;
}

/* write_field writes a field that is not fixed, and returns what it adds to the checksum. */
static __always_inline __u64 write_field(void *data, const volatile struct field16 *f)
{
	__u16 value;

	if (f->count <= 1)
		return 0;
	value = bpf_htons(f->first + below(f->count));
	*(__u16 *)(data + f->at) = value;
	return value;
}

/* write_tcp_numbers writes random sequence and acknowledgment numbers, and returns what they add to the checksum. */
static __always_inline __u64 write_tcp_numbers(void *data)
{
	__u64 numbers;

	if (!flow.tcp_random)
		return 0;
	numbers = next_random() & flow.tcp_random;
	*(__u64 *)(data + flow.tcp_at) = numbers;
	return (numbers & 0xffffffff) + (numbers >> 32);
}

/* write_ip_check finishes the IPv4 header. */
static __always_inline void write_ip_check(void *data, __u64 sum)
{
	if (!flow.ip_check_at)
		return;
	sum += flow.ip_sum;
	if (flow.id_at) {
		__u16 id = next_random() >> 48;

		*(__u16 *)(data + flow.id_at) = id;
		sum += id;
	}
	*(__u16 *)(data + flow.ip_check_at) = fold(sum);
}

/* generate writes all of a frame's headers, whatever the receiver of the recycled page left in it, and sends it. */
SEC("xdp") int generate(struct xdp_md *ctx)
{
	void *data, *end;
	__u64 addresses, l4;

	if (!due())
		return XDP_DROP;
	if (flow.trim && bpf_xdp_adjust_tail(ctx, -(int)flow.trim))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + flow.length > end)
		return XDP_ABORTED;
	write_header(data);
	addresses = write_address(data, &flow.source, &sources, &source_position);
	addresses += write_address(data, &flow.destination, &destinations, &destination_position);
	write_ip_check(data, addresses);

	l4 = write_field(data, &flow.sport);
	l4 += write_field(data, &flow.dport);
	l4 += write_field(data, &flow.id);
	l4 += write_tcp_numbers(data);
	if (flow.l4_check_at) {
		__u16 check = fold((flow.l4_pseudo ? addresses : 0) + l4 + flow.l4_sum);

		*(__u16 *)(data + flow.l4_check_at) = check ? check : flow.l4_zero;
	}
	return flow.ifindex ? bpf_redirect(flow.ifindex, 0) : XDP_PASS;
}

/* mix hands each packet to one of several generators, chosen at random by weight. The index of each tail call is a
 * constant, which makes it a direct jump. */
SEC("xdp") int mix(struct xdp_md *ctx)
{
	__u32 r;

	if (!due())
		return XDP_DROP;
	r = next_random() >> 32;
#pragma unroll
	for (int i = 0; i < FLOWS_MAX; i++)
		if (i < mix_flows && r <= mix_bound[i])
			bpf_tail_call_static(ctx, &flows, i);
	return XDP_ABORTED;
}

/* The reference programs. */

SEC("xdp") int drop_all(struct xdp_md *ctx)
{
	return XDP_DROP;
}

SEC("xdp") int pass_all(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* tx_all sends each frame back to the MAC address that it came from. */
SEC("xdp") int tx_all(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u16 *mac = data;
	__u16 kept[3];

	if (data + 12 > end)
		return XDP_DROP;
	for (int i = 0; i < 3; i++) {
		kept[i] = mac[i];
		mac[i] = mac[i + 3];
		mac[i + 3] = kept[i];
	}
	return XDP_TX;
}

struct counters {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counted SEC(".maps");

static __always_inline void count(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct counters *c = bpf_map_lookup_elem(&counted, &zero);

	if (!c)
		return;
	c->packets++;
	c->bytes += ctx->data_end - ctx->data;
}

SEC("xdp") int count_drop(struct xdp_md *ctx)
{
	count(ctx);
	return XDP_DROP;
}

SEC("xdp") int count_pass(struct xdp_md *ctx)
{
	count(ctx);
	return XDP_PASS;
}

/* struct captured is one frame, cut at CAPTURE_MAX bytes. */
struct captured {
	__u32 length; /* of the frame */
	__u8 frame[CAPTURE_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} captures SEC(".maps");

/* capture_drop copies each frame to user space, as long as there is space, and drops it. */
SEC("xdp") int capture_drop(struct xdp_md *ctx)
{
	__u64 length = ctx->data_end - ctx->data;
	struct captured *c;

	count(ctx);
	c = bpf_ringbuf_reserve(&captures, sizeof(*c), 0);
	if (!c)
		return XDP_DROP;
	c->length = length;
	if (length > CAPTURE_MAX)
		length = CAPTURE_MAX;
	asm volatile("" : "+r"(length)); /* or LLVM tests another register than the one it passes */
	if (length < 1 || length > CAPTURE_MAX || bpf_xdp_load_bytes(ctx, 0, c->frame, length) < 0) {
		bpf_ringbuf_discard(c, 0);
		return XDP_DROP;
	}
	bpf_ringbuf_submit(c, 0);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
