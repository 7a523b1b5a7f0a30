/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is done behind XDP about connections whose cookie came back: the kernel is given what it would have kept of the
 * SYN (bpf_sk_assign_tcp_reqsk, Linux 6.9). A program of its own at the tc hook (TCX).
 */
#pragma once

SEC("tcx/ingress")
int ingress(struct __sk_buff *skb)
{
	return TCX_NEXT;
}
