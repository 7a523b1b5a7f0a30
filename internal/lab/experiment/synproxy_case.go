package experiment

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// The cases that others are compared with.
const (
	limitTX     = "xdp-tx"
	limitDrop   = "xdp-drop"
	synproxyAt  = "synproxy/host"
	synproxyFor = "synproxy/router"
)

// synproxyTestCases are the rows. The talk names no figures for syncookies.
func synproxyTestCases() []*synproxyTestCase {
	return []*synproxyTestCase{
		{name: limitTX, label: "an empty XDP_TX", install: labProgram(lab.TxAll), limit: SYNs, article: mpps(10.8, 0)},
		{name: limitDrop, label: "an empty XDP_DROP", install: labProgram(lab.DropAll), limit: ACKs, article: mpps(0, 24.5)},
		{name: "one-byte", label: "XDP_DROP after reading one byte", install: peerProgram(rig.Touch), limit: ACKs},
		{name: "yardstick", label: "XDP_DROP after as much work as Floodwall's", install: peerProgram(rig.Yardstick), limit: ACKs},
		{name: "syncookies=1", label: "kernel, tcp_syncookies=1", resets: true, install: syncookies("1")},
		{name: "syncookies=2", label: "kernel, tcp_syncookies=2", resets: true, install: syncookies("2")},
		{name: synproxyAt, label: "kernel SYNPROXY, host", install: kernelSynproxy("INPUT"), article: mpps(0.406, 0.9)},
		{name: "floodwall/host", label: "floodwall, host", install: protect("host"), rival: synproxyAt, article: mpps(2.96, 5.6)},
		{name: synproxyFor, label: "kernel SYNPROXY, router", behind: true, install: kernelSynproxy("FORWARD"), article: mpps(0.406, 0.9)},
		{name: "floodwall/router", label: "floodwall, router", behind: true, install: protect("router"), rival: synproxyFor, article: mpps(2.96, 5.6)},
	}
}

// mpps is what the talk says of the two floods; 0: nothing.
func mpps(syn, ack float64) map[*Flood]float64 {
	return map[*Flood]float64{SYNs: syn, ACKs: ack}
}

type installer = func(context.Context, *synproxyBuilder, *synproxySite) error

// labProgram attaches one of the lab's programs.
func labProgram(name string) installer {
	return func(_ context.Context, b *synproxyBuilder, at *synproxySite) error {
		_, err := b.Lab.NewSink(at.In, name)
		return err
	}
}

// peerProgram attaches one of bpf/bench.c that drops. Both that are rows here need the frame itself, which on veth comes from
// the sender's core. For one byte the CPU does not wait: it foresees the verdict, and goes on with the next frame. With more to
// do than it has under way at a time, some hundred instructions, it waits for each frame.
func peerProgram(name string) installer {
	return func(_ context.Context, b *synproxyBuilder, at *synproxySite) error {
		p, err := rig.LoadPeerProgram(name)
		if err != nil {
			return err
		}
		_, err = b.Lab.Attach(at.In, b.Own(p))
		return err
	}
}

// syncookies has the kernel defend itself: with 1 when its queue is full, with 2 always.
func syncookies(value string) installer {
	return func(_ context.Context, _ *synproxyBuilder, at *synproxySite) error {
		return at.Server.Sysctl("ipv4/tcp_syncookies", value)
	}
}

// synproxyRules are the talk's, for INPUT or FORWARD.
const synproxyRules = `*raw
-A PREROUTING -p tcp -m tcp --syn --dport 80 -j CT --notrack
COMMIT
*filter
-A %[1]s -p tcp -m tcp --dport 80 -m state --state INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460
-A %[1]s -m state --state INVALID -j DROP
COMMIT
`

// kernelSynproxy sets up SYNPROXY as the talk did.
func kernelSynproxy(chain string) installer {
	return func(ctx context.Context, _ *synproxyBuilder, at *synproxySite) error {
		if err := at.Server.Sysctl("netfilter/nf_conntrack_tcp_loose", "0"); err != nil {
			return err
		}
		_, _, err := rig.RunTool(ctx, at.Server, strings.NewReader(fmt.Sprintf(synproxyRules, chain)), "iptables-legacy-restore")
		return err
	}
}

// synproxyPolicy is Floodwall's, for a mode, without its devices.
const synproxyPolicy = `default: drop
services:
  - {name: web, port: tcp/80, syn: {when: always, mode: %s}}
`

// protect applies a policy that protects the server, whatever the rate.
func protect(mode string) installer { return protectWhen(mode, "always") }

// protectWhen applies a policy that protects the server, always or from a rate on (auto).
func protectWhen(mode, when string) installer {
	return func(ctx context.Context, b *synproxyBuilder, at *synproxySite) error {
		_, err := b.Hold(ctx, at.Site, strings.Replace(fmt.Sprintf(synproxyPolicy, mode), "always", when, 1), "auto")
		return err
	}
}
