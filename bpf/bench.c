// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What `floodwall bench` compares with: the least that a program can do which looks at a packet, and the address sets
 * and limits that one writes with the kernel's own maps. They do nothing else: no checks, no VLAN tags, no options. All
 * of them drop what they are sent, listed or not, so that what they cost is what the rows differ in.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Keeps a value, and with it the load or the call that it came from, though the verdict does not depend on it. */
#define KEEP(value) asm volatile("" ::"r"(value))

/* touch reads one octet of the frame, the first of the destination address, and has it decide: no frame of the bench is
 * a broadcast. */
SEC("xdp") int touch(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;

	if ((void *)(data + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	return *data == 0xff ? XDP_PASS : XDP_DROP;
}

/* The network header, NULL unless the frame is of the family and holds it. */
static __always_inline void *network_header(struct xdp_md *ctx, __u16 ethertype, __u32 size)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) + size > (void *)(long)ctx->data_end)
		return NULL;
	return eth->h_proto == bpf_htons(ethertype) ? eth + 1 : NULL;
}

struct packets {
	__u64 packets, octets;
};

/* least does what no packet filter can leave out, and no more. It has one rule: UDP from one address to one port passes.
 * IPv4 packets without options and fragments are counted, with their bytes, and dropped unless the rule passes them.
 * All others pass. No frame of the bench has the rule's address, which is of 192.0.2.0/24 (RFC 5737). */
enum { LEAST_DEFAULT, LEAST_RULE, LEAST_COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LEAST_COUNTS);
	__type(key, __u32);
	__type(value, struct packets);
} least_counts SEC(".maps");

SEC("xdp") int least(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip) + sizeof(struct udphdr));
	struct udphdr *udp = (void *)(ip + 1);
	__u32 matched = LEAST_DEFAULT;
	struct packets *c;

	if (!ip || ip->ihl != sizeof(*ip) / 4 || ip->frag_off & bpf_htons(0x3fff)) /* more fragments, or an offset */
		return XDP_PASS;
	if (ip->protocol == IPPROTO_UDP && ip->saddr == bpf_htonl(0xc0000201) && udp->dest == bpf_htons(1001))
		matched = LEAST_RULE;
	c = bpf_map_lookup_elem(&least_counts, &matched);
	if (c) {
		c->packets++;
		c->octets += ctx->data_end - ctx->data;
	}
	return matched == LEAST_RULE ? XDP_PASS : XDP_DROP;
}

/* max_entries of the sets is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __be32);
	__type(value, __u8);
} hash4_set SEC(".maps");

SEC("xdp") int hash4(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip));

	if (ip)
		KEEP(bpf_map_lookup_elem(&hash4_set, &ip->saddr));
	return XDP_DROP;
}

struct key4 {
	__u32 length;
	__be32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key4);
	__type(value, __u8);
} lpm4_set SEC(".maps");

SEC("xdp") int lpm4(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip));
	struct key4 key = { .length = 32 };

	if (!ip)
		return XDP_DROP;
	key.address = ip->saddr;
	KEEP(bpf_map_lookup_elem(&lpm4_set, &key));
	return XDP_DROP;
}

struct key6 {
	__u32 length;
	struct in6_addr address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key6);
	__type(value, __u8);
} lpm6_set SEC(".maps");

SEC("xdp") int lpm6(struct xdp_md *ctx)
{
	struct ipv6hdr *ip = network_header(ctx, ETH_P_IPV6, sizeof(*ip));
	struct key6 key = { .length = 128 };

	if (!ip)
		return XDP_DROP;
	key.address = ip->saddr;
	KEEP(bpf_map_lookup_elem(&lpm6_set, &key));
	return XDP_DROP;
}

/* A limit of packets per second by prefix of the source, as programs have it that keep one bucket a source in the
 * kernel's LRU map: a packet of a source that is not in the map always makes an entry, and may cost another its own. It
 * counts what is over the limit, and of the rest, what goes to the heavy port and what does not.
 */
const volatile __be32 limit4_mask = 0;
const volatile __u64 limit4_interval = 0; /* ns a packet */
const volatile __u64 limit4_burst = 0;    /* ns that a source may have saved up */
const volatile __be16 limit4_heavy = 0;   /* port */

enum { LIMIT_OVER, LIMIT_HEAVY, LIMIT_LIGHT, LIMIT_COUNTS };

struct bucket {
	__u64 credit, last; /* ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __be32);
	__type(value, struct bucket);
} limit4_set SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LIMIT_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} limit4_counts SEC(".maps");

static __always_inline int over_limit(__be32 prefix)
{
	__u64 now = bpf_ktime_get_ns();
	struct bucket *b = bpf_map_lookup_elem(&limit4_set, &prefix);

	if (!b) {
		struct bucket first = { .credit = limit4_burst - limit4_interval, .last = now };

		bpf_map_update_elem(&limit4_set, &prefix, &first, BPF_ANY);
		return 0;
	}
	b->credit += now - b->last;
	b->last = now;
	if (b->credit > limit4_burst)
		b->credit = limit4_burst;
	if (b->credit < limit4_interval)
		return 1;
	b->credit -= limit4_interval;
	return 0;
}

SEC("xdp") int limit4(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip) + sizeof(struct udphdr));
	struct udphdr *udp;
	__u32 what;
	__u64 *count;

	if (!ip)
		return XDP_DROP;
	udp = (void *)(ip + 1);
	what = udp->dest == limit4_heavy ? LIMIT_HEAVY : LIMIT_LIGHT;
	if (over_limit(ip->saddr & limit4_mask))
		what = LIMIT_OVER;
	count = bpf_map_lookup_elem(&limit4_counts, &what);
	if (count)
		(*count)++;
	return XDP_DROP;
}

/* victim stands where answers of a resolver arrive, and tells those to the clients, which it passes, from those to
 * anybody else, which nobody asked for. Of the clients' it counts those that are truncated. All octets are of frames.
 */
const volatile __be32 victim_clients = 0; /* their network */
const volatile __be32 victim_mask = 0;

enum { VICTIM_OTHERS, VICTIM_CLIENTS, VICTIM_TRUNCATED, VICTIM_COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VICTIM_COUNTS);
	__type(key, __u32);
	__type(value, struct packets);
} victim_counts SEC(".maps");

static __always_inline void count_victim(struct xdp_md *ctx, __u32 what)
{
	struct packets *c = bpf_map_lookup_elem(&victim_counts, &what);

	if (!c)
		return;
	c->packets++;
	c->octets += ctx->data_end - ctx->data;
}

/* The beginning of a DNS message (RFC 1035, 4.1.1). */
struct dns {
	__be16 id;
	__u8 flags; /* QR, opcode, AA, TC, RD */
};

#define DNS_TRUNCATED 2

static __always_inline int truncated(struct xdp_md *ctx, struct iphdr *ip)
{
	struct udphdr *udp = (void *)(ip + 1);
	struct dns *dns = (void *)(udp + 1);

	if ((void *)(dns + 1) > (void *)(long)ctx->data_end)
		return 0;
	return ip->protocol == IPPROTO_UDP && udp->source == bpf_htons(53) && dns->flags & DNS_TRUNCATED;
}

SEC("xdp") int victim(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip));

	if (!ip)
		return XDP_PASS;
	if ((ip->daddr & victim_mask) != victim_clients) {
		count_victim(ctx, VICTIM_OTHERS);
		return XDP_DROP;
	}
	count_victim(ctx, truncated(ctx, ip) ? VICTIM_TRUNCATED : VICTIM_CLIENTS);
	return XDP_PASS;
}

/* spoofed stands where answers to the attacker's packets arrive, which are for addresses that are nobody's here. It counts
 * and drops them. */
enum { SPOOFED_SYNACK, SPOOFED_RST, SPOOFED_OTHER, SPOOFED_COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SPOOFED_COUNTS);
	__type(key, __u32);
	__type(value, struct packets);
} spoofed_counts SEC(".maps");

static __always_inline __u32 answer_kind(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip) + sizeof(struct tcphdr));
	struct tcphdr *tcp;

	if (!ip || ip->protocol != IPPROTO_TCP)
		return SPOOFED_OTHER;
	tcp = (void *)(ip + 1);
	if (tcp->rst)
		return SPOOFED_RST;
	return tcp->syn && tcp->ack ? SPOOFED_SYNACK : SPOOFED_OTHER;
}

SEC("xdp") int spoofed(struct xdp_md *ctx)
{
	__u32 what = answer_kind(ctx);
	struct packets *c = bpf_map_lookup_elem(&spoofed_counts, &what);

	if (c) {
		c->packets++;
		c->octets += ctx->data_end - ctx->data;
	}
	return XDP_DROP;
}

/* yardstick costs about what Floodwall's program costs, and changes with no build of it: what makes it slower is what else
 * the machine does. So it is of the same kinds of work, lookups in hashes, reads that depend on one another, branches and
 * a count, for frames of any kind, of which it reads the first octets.
 */
enum { YARDSTICK_OCTETS = 32, YARDSTICK_SLOTS = 1024, YARDSTICK_LOOKUPS = 2 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, YARDSTICK_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} yardstick_set SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, YARDSTICK_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} yardstick_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packets);
} yardstick_counts SEC(".maps");

SEC("xdp") int yardstick(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	__u32 state = 1, zero = 0, *slot;
	struct packets *c;

	if ((void *)(data + YARDSTICK_OCTETS) > (void *)(long)ctx->data_end)
		return XDP_DROP;
#pragma unroll
	for (int i = 0; i < YARDSTICK_OCTETS; i++) {
		__u32 key = (state ^ data[i]) % YARDSTICK_SLOTS;

		state = state * 31 + data[i];
		if (data[i] & 1)
			state ^= state >> 7;
		if (i % 4 == 0) {
			slot = bpf_map_lookup_elem(&yardstick_slots, &key);
			if (slot)
				state += *slot;
		}
		if (i % (YARDSTICK_OCTETS / YARDSTICK_LOOKUPS) == 1)
			KEEP(bpf_map_lookup_elem(&yardstick_set, &state));
	}
	c = bpf_map_lookup_elem(&yardstick_counts, &zero);
	if (c) {
		c->packets++;
		c->octets += state;
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
