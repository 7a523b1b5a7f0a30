// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/engine/ban"
)

// subject is a program, and the kinds of packets for it.
type subject struct {
	open  opener
	kinds []kind
}

// opener loads a program, and calls use with it.
type opener func(ctx context.Context, g *guard, use func(*ebpf.Program) error) error

// The policies that need more than rules.
const (
	limitPolicy = "default: drop\nreplies: drop\nchecks: off\n" +
		"rules: [{name: limit, proto: udp, over: {rate: 1/s, per: from/16, burst: 100}, then: drop}, {name: rest, proto: udp, then: pass}]\n"
	synPolicy  = "default: drop\nreplies: drop\nchecks: off\nservices: [{name: web, port: tcp/80, syn: {when: always, mode: host}}]\n"
	mssPolicy  = "default: drop\nreplies: drop\nchecks: off\nrules: [{name: tiny, mss: 0-535, then: drop}]\n"
	listPolicy = "default: drop\nreplies: drop\nchecks: off\nsets: {listed: {file: %s}}\nrules: [{name: listed, from: $listed, then: drop}]\n"
)

// banPolicy drops banned sources, and all other packets, too.
const banPolicy = "default: drop\nreplies: drop\nchecks: off\nsets: {bans: {dynamic: true, max: 1000}}\nrules: [{name: banned, from: $bans, then: drop}]\n"

// lengths returns bans of n prefix lengths, in separate networks: of the source of udp4, and of shorter prefixes.
func lengths(n int) (list []ban.Ban) {
	for i := range n {
		list = append(list, ban.Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(9 + i), 9, 9, 9}), 32-i).Masked()})
	}
	return list
}

// sampled makes the program sample the traffic, but so rarely that no packet counted here is sampled.
const sampled = "daemon: {sample: 1/1000000000}"

// listLength is the number of addresses of the list.
const listLength = 1_000_000

// More packets than the limit passes at the same time, and more than the number of packets at once for which the program asks the kernel (ASK_BURST
// of bpf/connlookup.h).
const (
	overLimit = 200
	overAsked = 2500
)

// subjects contains all programs that the guard can count.
var subjects = []subject{
	{reference(func() (*ebpf.Program, error) {
		return rig.LoadInstructions("empty", asm.Mov.Imm(asm.R0, rig.XDPDrop), asm.Return())
	}), []kind{dropped("empty", udp4)}},
	{reference(func() (*ebpf.Program, error) { return rig.LoadPeerProgram(rig.Touch) }), []kind{dropped("touch", udp4)}},
	{reference(func() (*ebpf.Program, error) { return rig.LoadPeerProgram(rig.Least) }), []kind{dropped("least", udp4)}},
	{rules(0, "off"), []kind{dropped("rules=0", udp4)}},
	{rules(20, "off"), []kind{
		dropped("rules=20", udp4), dropped("rules=20/ipv6", udp6), dropped("rules=20/vlan", tagged),
	}},
	{replying(20, "checks: off"), []kind{dropped("rules=20/replies", udp4), dropped("rules=20/replies/ipv6", udp6)}},
	{flowing(20), []kind{
		after("reply", rig.XDPPass, 1, reply4), after("reply/ipv6", rig.XDPPass, 1, reply6),
		after("reply/udp", rig.XDPPass, 1, replyUDP), forgedReplies("reply/forged"),
	}},
	{rules(20, "off\n"+sampled), []kind{dropped("rules=20/sampled", udp4)}},
	{rules(20, "standard"), []kind{dropped("rules=20/standard", udp4)}},
	{rules(20, "strict"), []kind{dropped("rules=20/strict", udp4), dropped("rules=20/strict/dns", answer), forged("rules=20/strict/forged"),
		dropped("rules=20/strict/amplified", amplify)}},
	{replying(20, "checks: strict"), []kind{dropped("rules=20/strict/replies", udp4), dropped("rules=20/strict/replies/amplified", amplify)}},
	{rules(500, "off"), []kind{dropped("rules=500", udp4), ruled(500)}},
	{rules(10_000, "off"), []kind{dropped("rules=10000", udp4), ruled(10_000)}},
	{list, []kind{
		flood("listed", func(g *guard) []netip.Addr { return g.list.Listed }),
		flood("unlisted", func(g *guard) []netip.Addr { return g.list.Unlisted }),
	}},
	{banning(banPolicy, lengths(1)...), []kind{dropped("bans", udp4)}},
	{banning(banPolicy, lengths(8)...), []kind{dropped("bans/lengths", udp4), dropped("bans/lengths/other", other)}},
	{patterns(1), []kind{dropped("pattern", long)}},
	{patterns(64), []kind{dropped("patterns=64", long)}},
	{policy(rig.WebServer), []kind{dropped("closed", udp4)}},
	{policy(rig.WebServer + rig.ConnectionLimit), []kind{dropped("closed/connections", udp4)}},
	{policy(limitPolicy), []kind{
		after("limit/within", rig.XDPPass, 1, udp4), after("limit/over", rig.XDPDrop, overLimit, udp4),
	}},
	{udpService(rig.UDPServices[0]), serviceKinds(rig.UDPServices[0])},
	{udpService(rig.UDPServices[1]), serviceKinds(rig.UDPServices[1])},
	{udpService(rig.UDPServices[2]), serviceKinds(rig.UDPServices[2])},
	{udpService(rig.GameServer), []kind{
		during("udp/a2s/refused", rig.GameServer, rig.XDPDrop, rig.GameServer.Refused()),
		during("udp/a2s/info", rig.GameServer, rig.XDPTX, rig.GameServer.Asks(rig.QueryInfo)),
		during("udp/a2s/player", rig.GameServer, rig.XDPTX, rig.GameServer.Asks(rig.QueryPlayer)),
	}},
	{udpService(rig.RakNetServer), []kind{
		during("udp/raknet/known", rig.RakNetServer, rig.XDPPass, rig.RakNetServer.Known()),
		during("udp/raknet/refused", rig.RakNetServer, rig.XDPDrop, rig.RakNetServer.Refused()),
		during("udp/raknet/first", rig.RakNetServer, rig.XDPTX, rig.RakNetServer.Asks(rig.RequestFirst)),
		during("udp/raknet/second", rig.RakNetServer, rig.XDPDrop, rig.RakNetServer.Asks(rig.RequestForged)),
	}},
	{inTC(rules(0, "off")), atTC(dropped("rules=0", udp4))},
	{inTC(rules(20, "off")), atTC(dropped("rules=20", udp4), dropped("rules=20/ipv6", udp6))},
	{inTC(rules(20, "strict")), atTC(dropped("rules=20/strict", udp4))},
	{inTC(rules(10_000, "off")), atTC(dropped("rules=10000", udp4))},
	{inTC(list), atTC(flood("listed", func(g *guard) []netip.Addr { return g.list.Listed }))},
	{inTC(flowing(20)), atTC(after("reply", rig.XDPPass, 1, reply4), after("reply/udp", rig.XDPPass, 1, replyUDP))},
	{policy(mssPolicy), []kind{dropped("mss", tiny), dropped("mss/late", late)}},
	{policy(synPolicy), []kind{
		after("syn", rig.XDPTX, 1, syn), after("syn/windows", rig.XDPTX, 1, windows), after("syn/blank", rig.XDPTX, 1, blank),
		after("ack", rig.XDPDrop, overAsked, stray),
		{name: "connection", want: rig.XDPPass, before: bare, times: 1, reply: handshake, lines: one(segment)},
	}},
}

// Kinds returns the names of the kinds of packets.
func Kinds() (names []string) {
	for _, s := range subjects {
		for _, k := range s.kinds {
			names = append(names, k.name)
		}
	}
	return names
}

// reference returns a program that belongs to no policy.
func reference(load func() (*ebpf.Program, error)) opener {
	return func(_ context.Context, _ *guard, use func(*ebpf.Program) error) error {
		p, err := load()
		if err != nil {
			return err
		}
		defer p.Close()
		return use(p)
	}
}

// rules returns the program of n rules that do not match, and of `replies: drop`.
func rules(n int, checks string) opener {
	return replying(n, "replies: drop\nchecks: "+checks)
}

// replying returns the program of n rules that do not match, after other keys. The text is made when the program is counted. Otherwise, every command
// of floodwall would make it at its start.
func replying(n int, keys string) opener {
	return func(ctx context.Context, g *guard, use func(*ebpf.Program) error) error {
		return policy(keys+"\n"+rig.RulesPolicy(n))(ctx, g, use)
	}
}

// openFlows is the number of open flows. No counted packet belongs to any of them.
const openFlows = 250_000

// flowing returns the program of n rules that do not match, with open flows that started here.
func flowing(n int) opener {
	return prepared(replying(n, "checks: off"), func(xdp, egress *ebpf.Program) error {
		for own, reply := range openings {
			err := rig.Leave(egress, own)
			if err == nil {
				_, err = rig.Arrive(xdp, reply)
			}
			if err != nil {
				return err
			}
		}
		return rig.OpenFlows(xdp, egress, forgedTo, openFlows)
	})
}

// udpService returns the program of a protected UDP service, during a flood.
func udpService(u rig.UDPService) opener {
	return prepared(policy(u.Policy()), func(xdp, egress *ebpf.Program) error {
		if err := u.Meet(xdp, egress); err != nil {
			return err
		}
		return u.Flood(xdp, overLimit)
	})
}

// prepared returns a program after prepare has run it, and the program for packets that leave.
func prepared(open opener, prepare func(xdp, egress *ebpf.Program) error) opener {
	return func(ctx context.Context, g *guard, use func(*ebpf.Program) error) error {
		return open(ctx, g, func(xdp *ebpf.Program) error {
			egress, err := rig.EgressProgram(g.at.In.Name)
			if err != nil {
				return err
			}
			defer egress.Close()
			if err := prepare(xdp, egress); err != nil {
				return err
			}
			return use(xdp)
		})
	}
}

// patterns returns the program of n rules that each search the payload for a text. No packet has any of the texts.
func patterns(n int) opener {
	return func(ctx context.Context, g *guard, use func(*ebpf.Program) error) error {
		text := "default: drop\nreplies: drop\nchecks: off\nrules:\n"
		for i := range n {
			text += fmt.Sprintf("  - {name: p%d, proto: udp, payload: {contains: %q}, then: drop}\n", i, fmt.Sprintf("text%02d.example", i))
		}
		return policy(text)(ctx, g, use)
	}
}

// policy returns the program of a policy that is in force.
func policy(text string) opener {
	return banning(text)
}

// banning returns the program of a policy with bans in force.
func banning(text string, bans ...ban.Ban) opener {
	return func(ctx context.Context, g *guard, use func(*ebpf.Program) error) error {
		held, err := g.at.Install(ctx, text, rig.TargetOptions(g.place))
		if err != nil {
			return err
		}
		err = g.at.Server.Do(func() error {
			if len(bans) > 0 {
				if _, err := held.Block(ctx, "", bans); err != nil {
					return err
				}
			}
			open := rig.AttachedProgram
			if g.place == "tc" {
				open = rig.IngressProgram
			}
			p, err := open(g.at.In.Name)
			if err != nil {
				return err
			}
			defer p.Close()
			return use(p)
		})
		return errors.Join(err, held.Remove())
	}
}

// inTC returns the same subject in mode tc.
func inTC(open opener) opener {
	return func(ctx context.Context, g *guard, use func(*ebpf.Program) error) error {
		defer func(place string) { g.place = place }(g.place)
		g.place = "tc"
		return open(ctx, g, use)
	}
}

// list returns the program of a policy with a list.
func list(ctx context.Context, g *guard, use func(*ebpf.Program) error) error {
	g.list = rig.RandomHosts(g.listLength)
	file, remove, err := rig.TempFile("list.txt", func(w io.Writer) error { return g.list.Write(w) })
	if err != nil {
		return err
	}
	defer remove()
	return policy(fmt.Sprintf(listPolicy, strconv.Quote(file)))(ctx, g, use)
}
