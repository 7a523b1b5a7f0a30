// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// section is a table of the keys of one mapping.
type section struct {
	title string
	intro string
	at    string // path of the mapping in the schema
	// policy is a policy with KEY in the place of a key and its value.
	policy string
	// beside has policies for keys that need other keys.
	beside map[string]string
	// matrix reports whether the examples of these keys are rows of the matrix.
	matrix bool
}

// Policies around a key. Each has a set of every kind.
const (
	sets      = "devices: [eth0]\nsets: {office: [203.0.113.0/24], bans: {dynamic: true, max: 100}}\n"
	inRule    = sets + "rules: [{name: x, KEY, then: drop}]"
	inUDP     = sets + "rules: [{name: x, proto: udp, KEY, then: drop}]"
	inOver    = sets + "rules: [{name: x, over: {rate: 100/s, KEY}, then: drop}]"
	perSource = sets + "rules: [{name: x, over: {rate: 100/s, per: from, KEY}, then: drop}]"
	inBans    = "devices: [eth0]\nsets: {bans: {dynamic: true, max: 1000}}\nKEY\n"
	inWeb     = sets + "services: [{name: x, port: tcp/80, KEY}]"
	inDNS     = sets + "services: [{name: x, port: [udp/53, tcp/53], KEY}]"
	inGame    = sets + "services: [{name: x, port: udp/27015, KEY}]"
	inSet     = "devices: [eth0]\nsets: {s: {KEY}}\nrules: [{name: x, from: $s, then: drop}]"
	fetched   = "url: https://lists.example/drop.txt"
	dropping  = sets + "default: drop\nKEY\n"
)

// with adds other keys before KEY.
func with(policy, others string) string { return strings.Replace(policy, "KEY", others+", KEY", 1) }

// within puts KEY into a mapping, after the mapping's other keys if there are any.
func within(policy, outer, others string) string {
	policy = strings.Replace(policy, "KEY", outer+": {KEY}", 1)
	if others == "" {
		return policy
	}
	return with(policy, others)
}

// withTLS returns a policy whose API has certificates.
func withTLS(keys string) string {
	return strings.Replace(inBans, "KEY", "daemon: {listen: \"127.0.0.1:9810\", tls: {"+keys+"}}", 1)
}

var sections = []section{
	{
		title: "Top level", at: "", policy: sets + "KEY\n", matrix: true, intro: "",
		beside: map[string]string{
			"devices": "KEY\n", "sets": "devices: [eth0]\nKEY\n", "essential": dropping,
		},
	},
	{
		title: "Sets", at: "$defs/set/anyOf/2", policy: inSet,
		intro: "A set is a list of addresses, or a mapping with one of `file`, `dynamic`, `url`, `country` and `asn`.",
		beside: map[string]string{
			"max":     with(inSet, "dynamic: true"),
			"dynamic": with(inSet, "max: 10"),
			"timeout": with(inSet, "dynamic: true, max: 10"),
			"every":   with(inSet, fetched), "shrink": with(inSet, fetched), "grow": with(inSet, fetched), "format": with(inSet, fetched),
			"sha256": with(inSet, fetched), "minisign": with(inSet, fetched),
			"country": with(inSet, "db: GeoLite2-Country.mmdb"), "asn": with(inSet, "db: GeoLite2-Country.mmdb"), "db": with(inSet, "country: XX"),
		},
	},
	{
		title: "Sets of domain names", at: "$defs/set/anyOf/3", intro: "For the key `dns: {name: $SET}`.",
		policy: "devices: [eth0]\nsets: {s: {KEY}}\nrules: [{name: x, dns: {name: $s}, then: drop}]",
	},
	{
		title: "Rules", at: "$defs/rule", policy: inRule, matrix: true,
		intro: "A rule with `then` alone matches every packet.",
		beside: map[string]string{
			"name":   sets + "rules: [{KEY, then: drop}]",
			"then":   sets + "rules: [{name: x, port: tcp/80, KEY}]",
			"slip":   sets + "rules: [{name: x, dns: query, then: truncate, KEY}]",
			"sample": inRule,
		},
	},
	{
		title: "Limits", at: "$defs/limit", policy: inOver, intro: "Of `over`, and of guards and services.",
		beside: map[string]string{"rate": within(inRule, "over", "per: from"), "burst": perSource, "max": perSource, "ban": perSource},
	},
	{
		title: "Connections", at: "$defs/connLimit", policy: within(inRule, "over", "connections: 20, per: from"),
		intro: "A number of connections in `over`. The first packet of a connection matches when as many of its prefix are open. Connection tracking " +
			"counts: a TCP connection until both sides have closed it, any other until it times out. Each apply begins to count anew.",
		beside: map[string]string{"connections": within(inRule, "over", "per: from"), "per": within(inRule, "over", "connections: 20")},
	},
	{
		title: "Bans", at: "$defs/limit/properties/ban/anyOf/1", policy: within(perSource, "ban", "for: 10m"), intro: "Of `ban` in a limit.",
		beside: map[string]string{"for": within(perSource, "ban", "")},
	},
	{
		title: "Payload", at: "$defs/payload", policy: within(inUDP, "payload", "contains: text"), intro: "",
		beside: map[string]string{"contains": within(inUDP, "payload", ""), "at": within(inUDP, "payload", "")},
	},
	{
		title: "Bytes at a place", at: "$defs/place", intro: "Of `payload: {at: …}`.",
		policy: strings.Replace(inRule, "KEY", "payload: {at: {offset: 0, bytes: ABC, KEY}}", 1),
		beside: map[string]string{
			"offset": strings.Replace(inRule, "KEY", "payload: {at: {bytes: A, KEY}}", 1),
			"bytes":  strings.Replace(inRule, "KEY", "payload: {at: {offset: 0, KEY}}", 1),
			"mask":   strings.Replace(inRule, "KEY", "payload: {at: {offset: 0, bytes: \"|ff 0a|\", KEY}}", 1),
		},
	},
	{
		title: "DNS queries", at: "$defs/dns/anyOf/2", policy: within(inRule, "dns", ""),
		intro: "Of `dns` in a rule, which can also name a kind of message: `dns: query`.",
	},
	{
		title: "Services", at: "$defs/service", policy: inWeb, matrix: true, intro: "",
		beside: map[string]string{
			"name": sets + "services: [{port: tcp/80, KEY}]", "port": sets + "services: [{name: x, KEY}]", "guard": inDNS, "udp": inGame,
		},
	},
	{
		title: "SYN protection", at: "$defs/syn/anyOf/2", policy: within(inWeb, "syn", "mode: host"),
		intro: "Of `syn`. `syn: protect` has all defaults.",
		beside: map[string]string{
			"mode": within(inWeb, "syn", ""), "backends": within(inWeb, "syn", "mode: router"), "stop": within(inWeb, "syn", "mode: host, start: 5000/s"),
		},
	},
	{
		title: "UDP protection", at: "$defs/udp/anyOf/2", policy: within(inGame, "udp", "start: 10000/s"),
		intro:  "Of `udp`. `udp: protect` has all defaults. [UDP floods](design/udp-floods.md) says who is known, and which `start` to choose.",
		beside: map[string]string{"start": within(inGame, "udp", "protect: generic")},
	},
	{
		title: "The DNS guard", at: "$defs/guard/anyOf/1", policy: within(inDNS, "guard", "type: dns"),
		intro:  "Of `guard`. `guard: dns` has all defaults.",
		beside: map[string]string{"type": within(inDNS, "guard", "")},
	},
	{
		title: "The daemon", at: "properties/daemon", policy: within(inBans, "daemon", ""),
		intro:  "Of `daemon`. See [the API](api.md) and [bans from others](guides/bans-from-others.md).",
		beside: map[string]string{"tls": within("devices: [eth0]\nKEY\n", "daemon", "listen: \"192.0.2.1:9810\"")},
	},
	{
		title: "Detection", at: "properties/detect", policy: within("devices: [eth0]\nKEY\n", "detect", "baseline: learn"),
		intro:  "Of `detect`. See [under attack](guides/under-attack.md).",
		beside: map[string]string{"baseline": within("devices: [eth0]\nKEY\n", "detect", "")},
	},
	{
		title: "Devices", at: "$defs/deviceOptions", policy: "devices: [eth0, {name: eth1, KEY}]\nrules: [{port: udp/9, then: drop}]\n",
		intro:  "Of a device in `devices`.",
		beside: map[string]string{"name": "devices: [eth0, {KEY}]\nrules: [{port: udp/9, then: drop}]\n"},
	},
	{
		title: "The program at XDP", at: "$defs/xdp/anyOf/1", policy: strings.Replace(inBans, "KEY", "xdp: {when: flooded, KEY}", 1),
		intro:  "Of `xdp`. [Operations](operations.md#at-xdp-only-in-a-flood) says how the program moves.",
		beside: map[string]string{"when": strings.Replace(inBans, "KEY", "xdp: {KEY}", 1)},
	},
	{
		title: "Rules that the daemon adds", at: "properties/detect/properties/auto",
		policy: within("devices: [eth0]\ndetect: {baseline: learn, KEY}\n", "auto", ""),
		intro:  "Of `auto` in `detect`. [The commands](commands.md#attacks) say how the daemon decides.",
	},
	{
		title: "Upstream", at: "properties/upstream", policy: upstream("KEY", "address: 192.0.2.254, as: 64501"),
		intro: "Of `upstream`. See [the guide](guides/upstream.md).",
		beside: map[string]string{
			"as": upstreamWithout("as"), "router_id": upstreamWithout("router_id"), "announce": upstreamWithout("announce"), "peers": upstreamWithout("peers"),
		},
	},
	{
		title: "Black holes", at: "properties/upstream/properties/rtbh", policy: upstream("rtbh: {KEY}", "address: 192.0.2.254, as: 64501"),
		intro: "Of `rtbh` in `upstream`.",
	},
	{
		title: "FlowSpec routes of routers", at: "properties/upstream/properties/receive",
		policy: upstream("receive: {KEY}", "address: 192.0.2.254, as: 64501"), intro: "Of `receive` in `upstream`.",
	},
	{
		title: "Routers", at: "$defs/router", policy: upstream("live: false", "address: 192.0.2.254, as: 64501, KEY"),
		intro: "Of `peers` in `upstream`.",
		beside: map[string]string{
			"address": upstream("live: false", "as: 64501, KEY"), "as": upstream("live: false", "address: 192.0.2.254, KEY"),
			"families": upstream("rtbh: {next_hop: \"100::1\"}", "address: 192.0.2.254, as: 64501, KEY"),
		},
	},
	{
		title: "Certificates of the API", at: "properties/daemon/properties/tls",
		intro: "Of `tls` in `daemon`.",
		beside: map[string]string{
			"cert":      withTLS("KEY, key: /etc/floodwall/key.pem, client_ca: /etc/floodwall/ca.pem"),
			"key":       withTLS("cert: /etc/floodwall/cert.pem, KEY, client_ca: /etc/floodwall/ca.pem"),
			"client_ca": withTLS("cert: /etc/floodwall/cert.pem, key: /etc/floodwall/key.pem, KEY"),
		},
	},
	{
		title: "The webhook", at: "properties/daemon/properties/webhook",
		policy: strings.Replace(inBans, "KEY", "daemon: {webhook: {url: \"https://hooks.example/\", KEY}}", 1),
		intro:  "Of `webhook` in `daemon`.",
		beside: map[string]string{"url": strings.Replace(inBans, "KEY", "daemon: {webhook: {KEY}}", 1)},
	},
	{
		title: "CrowdSec", at: "properties/daemon/properties/crowdsec",
		policy: strings.Replace(inBans, "KEY", "daemon: {crowdsec: {url: \"http://127.0.0.1:8080\", key_file: /etc/floodwall/crowdsec.key, KEY}}", 1),
		intro:  "Of `crowdsec` in `daemon`.",
		beside: map[string]string{
			"url":      strings.Replace(inBans, "KEY", "daemon: {crowdsec: {key_file: /etc/floodwall/crowdsec.key, KEY}}", 1),
			"key_file": strings.Replace(inBans, "KEY", "daemon: {crowdsec: {url: \"http://127.0.0.1:8080\", KEY}}", 1),
		},
	},
	{
		title: "Suricata", at: "properties/daemon/properties/suricata/anyOf/1",
		policy: strings.Replace(inBans, "KEY", "daemon: {suricata: {file: /var/log/suricata/eve.json, KEY}}", 1),
		intro:  "Of `suricata` in `daemon`. `suricata: FILE` has all defaults.",
		beside: map[string]string{"file": strings.Replace(inBans, "KEY", "daemon: {suricata: {KEY}}", 1)},
	},
	{
		title: "Essential rules", at: "properties/essential", policy: within(dropping, "essential", ""),
		intro: "`default: drop` adds these rules after the services. Each passes its packets up to a limit.",
	},
	{
		title: "The limit of an essential rule", at: "$defs/essential/anyOf/1", intro: "",
		policy: strings.Replace(dropping, "KEY", "essential: {icmp-errors: {KEY}}", 1),
	},
}

// upstreamNeeds are the required keys of `upstream`.
var upstreamNeeds = map[string]string{"as": "as: 64500", "router_id": "router_id: 192.0.2.1", "announce": "announce: 192.0.2.0/24"}

// upstream returns a policy with a key of `upstream` and one router.
func upstream(key, router string) string {
	return fmt.Sprintf("devices: [eth0]\nupstream: {as: 64500, router_id: 192.0.2.1, announce: 192.0.2.0/24, %s, peers: [{%s}]}\ndetect: {baseline: learn}\n", key, router)
}

// upstreamWithout returns a policy whose `upstream` has KEY in place of a required key.
func upstreamWithout(key string) string {
	p := upstream("live: false", "address: 192.0.2.254, as: 64501")
	if key == "peers" {
		return strings.Replace(p, "peers: [{address: 192.0.2.254, as: 64501}]", "KEY", 1)
	}
	return strings.Replace(p, upstreamNeeds[key], "KEY", 1)
}

// probe returns the policy in which a key has an example as its value.
func (s section) probe(k key, example any) string {
	policy, ok := s.beside[k.name]
	switch {
	case k.name == "syn" && example == "protect": // its mode depends on the servers of this machine
		return strings.Replace(inWeb, "KEY", "syn: {mode: host}", 1)
	case k.name == "then" && example == "truncate":
		policy = sets + "rules: [{name: x, dns: query, KEY}]"
	case !ok:
		policy = s.policy
	}
	return strings.Replace(policy, "KEY", fmt.Sprintf("%s: %s", k.name, flow(example)), 1)
}
