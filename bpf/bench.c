// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What `floodwall bench` compares with: the least that a program can do which looks at a packet, and the address sets
 * that one writes with the kernel's own maps. They do nothing else: no checks, no VLAN tags, no options, no counters.
 * All of them drop what they are sent, listed or not, so that what they cost is what the rows differ in.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
