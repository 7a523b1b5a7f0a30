// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The programs with which `floodwall bench` compares Floodwall: the least that a program which reads a packet can do, and
 * address sets and limits made of the kernel's own maps. They do nothing else: no checks, no VLAN tags, no options. All
 * of them drop the packets of the bench, listed or not, so that the rows differ only in the cost of the programs.
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

/* touch reads one byte of the frame, the first of the destination address, and decides by it: no frame of the bench is
 * a broadcast. */
SEC("xdp") int touch(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;

	if ((void *)(data + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	return *data == 0xff ? XDP_PASS : XDP_DROP;
}

/* The network header; NULL if the frame has another EtherType, or less than size bytes behind the Ethernet header. */
static __always_inline void *network_header(struct xdp_md *ctx, __u16 ethertype, __u32 size)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) + size > (void *)(long)ctx->data_end)
		return NULL;
	return eth->h_proto == bpf_htons(ethertype) ? eth + 1 : NULL;
}

struct packets {
	__u64 packets, bytes;
};

/* The least programs do what no packet filter can leave out, and no more. Each is for one kind of frame and has one rule:
 * packets of its protocol from one address to one port pass. Packets of its kind are counted, with their bytes, and
 * dropped unless the rule passes them. All others pass, among them fragments and IPv4 packets with options. No frame of the
 * bench has a rule's address, which is of 192.0.2.0/24 (RFC 5737) or 2001:db8::/32 (RFC 3849).
 */
enum { LEAST_DEFAULT, LEAST_RULE, LEAST_COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LEAST_COUNTS);
	__type(key, __u32);
	__type(value, struct packets);
} least_counts SEC(".maps");

/* The ports are at the same place in UDP and TCP. */
struct ports {
	__be16 source, dest;
};

static __always_inline int count_least(struct xdp_md *ctx, int matches)
{
	__u32 matched = matches ? LEAST_RULE : LEAST_DEFAULT;
	struct packets *c = bpf_map_lookup_elem(&least_counts, &matched);

	if (c) {
		c->packets++;
		c->bytes += ctx->data_end - ctx->data;
	}
	return matched == LEAST_RULE ? XDP_PASS : XDP_DROP;
}

#define LEAST_SOURCE bpf_htonl(0xc0000201) /* 192.0.2.1 */

static __always_inline int decide_least4(struct xdp_md *ctx, struct iphdr *ip, __u8 protocol, __u32 size, __be32 source)
{
	struct ports *ports = (void *)(ip + 1);

	if (!ip || (void *)ports + size > (void *)(long)ctx->data_end || ip->ihl != sizeof(*ip) / 4 ||
	    ip->frag_off & bpf_htons(0x3fff)) /* more fragments, or an offset */
		return XDP_PASS;
	return count_least(ctx, ip->protocol == protocol && ip->saddr == source && ports->dest == bpf_htons(1001));
}

SEC("xdp") int least(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip) + sizeof(struct udphdr));

	return decide_least4(ctx, ip, IPPROTO_UDP, sizeof(struct udphdr), LEAST_SOURCE);
}

SEC("xdp") int least_tcp(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip) + sizeof(struct tcphdr));

	return decide_least4(ctx, ip, IPPROTO_TCP, sizeof(struct tcphdr), LEAST_SOURCE);
}

/* A VLAN tag behind the Ethernet header (IEEE 802.1Q). */
struct tag {
	__be16 id, ethertype;
};

SEC("xdp") int least_vlan(struct xdp_md *ctx)
{
	struct tag *tag = network_header(ctx, ETH_P_8021Q, sizeof(*tag) + sizeof(struct iphdr) + sizeof(struct udphdr));

	if (!tag || tag->ethertype != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	return decide_least4(ctx, (void *)(tag + 1), IPPROTO_UDP, sizeof(struct udphdr), LEAST_SOURCE);
}

SEC("xdp") int least_ipv6(struct xdp_md *ctx)
{
	struct ipv6hdr *ip = network_header(ctx, ETH_P_IPV6, sizeof(*ip) + sizeof(struct udphdr));
	struct udphdr *udp = (void *)(ip + 1);

	if (!ip)
		return XDP_PASS;
	return count_least(ctx, ip->nexthdr == IPPROTO_UDP && ip->saddr.s6_addr32[0] == bpf_htonl(0x20010db8) &&
					!(ip->saddr.s6_addr32[1] | ip->saddr.s6_addr32[2]) &&
					ip->saddr.s6_addr32[3] == bpf_htonl(1) && udp->dest == bpf_htons(1001));
}

/* least_line does the same as least, and also reads a line of a table. A hash of the source address gives the line. Every exact set that
 * the address itself cannot index must read at least that. max_entries and least_lines, both the number of lines, are set before loading.
 * The lines are zero, so no packet matches. */
const volatile __u32 least_lines = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32[16]);
} least_line_set SEC(".maps");

SEC("xdp") int least_line(struct xdp_md *ctx)
{
	struct iphdr *ip = network_header(ctx, ETH_P_IP, sizeof(*ip) + sizeof(struct udphdr));
	__u32 number, *line;

	if (!ip)
		return XDP_PASS;
	number = (__u64)(ip->saddr * 0x9e3779b1) * least_lines >> 32; /* Fibonacci hashing (Knuth, volume 3, 6.4) */
	line = bpf_map_lookup_elem(&least_line_set, &number);
	return line ? decide_least4(ctx, ip, IPPROTO_UDP, sizeof(struct udphdr), *line) : XDP_DROP;
}

/* answer turns each IPv4 TCP packet into a SYN-ACK of 74 bytes, as Linux answers a SYN of that length, and sends it back.
 * SYN protection writes the same frame, but also decides and makes a cookie. Frames that are shorter or not IPv4 are dropped, all others pass. */
struct answer_options {
	__be32 mss_sack[2], stamp, echo, scale;
};

static __always_inline __u16 fold_sum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

static __always_inline __u64 sum_words(__be32 *words, int n)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < n; i++)
		sum += words[i];
	return sum;
}

SEC("xdp") int answer(struct xdp_md *ctx)
{
	struct iphdr *ip =
		network_header(ctx, ETH_P_IP, sizeof(*ip) + sizeof(struct tcphdr) + sizeof(struct answer_options));
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct answer_options *o;
	struct tcphdr *tcp;
	__u8 mac[ETH_ALEN];
	__be32 address;
	__be16 port;

	if (!ip)
		return XDP_DROP;
	if (ip->protocol != IPPROTO_TCP || ip->ihl != sizeof(*ip) / 4)
		return XDP_PASS;
	tcp = (void *)(ip + 1);
	o = (void *)(tcp + 1);
	__builtin_memcpy(mac, eth->h_dest, sizeof(mac));
	__builtin_memcpy(eth->h_dest, eth->h_source, sizeof(mac));
	__builtin_memcpy(eth->h_source, mac, sizeof(mac));
	address = ip->saddr;
	*ip = (struct iphdr){ .version = 4,
			      .ihl = 5,
			      .tot_len = bpf_htons(60),
			      .frag_off = bpf_htons(0x4000),
			      .ttl = 64,
			      .protocol = IPPROTO_TCP,
			      .saddr = ip->daddr,
			      .daddr = address };
	ip->check = fold_sum(sum_words((void *)ip, sizeof(*ip) / 4));
	port = tcp->source;
	*tcp = (struct tcphdr){ .source = tcp->dest,
				.dest = port,
				.seq = bpf_htonl(0x01020304),
				.ack_seq = bpf_htonl(bpf_ntohl(tcp->seq) + 1),
				.doff = 10,
				.syn = 1,
				.ack = 1,
				.window = 0xffff };
	*o = (struct answer_options){
		{ bpf_htonl(0x020405b4), bpf_htonl(0x0402080a) }, bpf_htonl(1), o->stamp, bpf_htonl(0x01030307)
	};
	tcp->check = fold_sum(sum_words((void *)tcp, (sizeof(*tcp) + sizeof(*o)) / 4) + ip->saddr + ip->daddr +
			      bpf_htons(IPPROTO_TCP) + bpf_htons(40));
	return XDP_TX;
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

/* A limit of packets per second by prefix of the source, like that of programs which keep one bucket per source in the
 * kernel's LRU map: a packet of a source that is not in the map always adds an entry, and may evict another source's. The
 * program counts the packets over the limit, and of the rest, the packets to the heavy port and those to other ports.
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

/* victim runs where the answers of a resolver arrive. It passes answers to the clients. It drops answers to any other address,
 * for which nobody asked. It counts both, and truncated answers to clients apart from others. Bytes are those of whole frames.
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
	c->bytes += ctx->data_end - ctx->data;
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

/* spoofed runs where the answers to the attacker's packets arrive. Their destinations are spoofed addresses, which no host here has. It
 * counts and drops them. */
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
		c->bytes += ctx->data_end - ctx->data;
	}
	return XDP_DROP;
}

/* yardstick costs about as much as Floodwall's program, but does not change with builds of Floodwall: only other load of the
 * machine makes it slower. So it does the same kinds of work: lookups in hashes, reads that depend on one another, branches and
 * a count. It takes frames of any kind, and reads their first bytes.
 */
enum { YARDSTICK_BYTES = 32, YARDSTICK_SLOTS = 1024, YARDSTICK_LOOKUPS = 2 };

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

	if ((void *)(data + YARDSTICK_BYTES) > (void *)(long)ctx->data_end)
		return XDP_DROP;
#pragma unroll
	for (int i = 0; i < YARDSTICK_BYTES; i++) {
		__u32 key = (state ^ data[i]) % YARDSTICK_SLOTS;

		state = state * 31 + data[i];
		if (data[i] & 1)
			state ^= state >> 7;
		if (i % 4 == 0) {
			slot = bpf_map_lookup_elem(&yardstick_slots, &key);
			if (slot)
				state += *slot;
		}
		if (i % (YARDSTICK_BYTES / YARDSTICK_LOOKUPS) == 1)
			KEEP(bpf_map_lookup_elem(&yardstick_set, &state));
	}
	c = bpf_map_lookup_elem(&yardstick_counts, &zero);
	if (c) {
		c->packets++;
		c->bytes += state;
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
