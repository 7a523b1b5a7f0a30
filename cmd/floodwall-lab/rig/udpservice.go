// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"encoding/hex"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// UDPService is a UDP service at port 7000 that is protected from floods, and datagrams of its protocol. A payload is padded with zeros to its
// length.
type UDPService struct {
	Protocol string
	Issues   string // the datagram in which the service issues an identifier; "" (also in Has, Lacks and Opens): the protocol has none
	Has      string // a datagram with that identifier
	Lacks    string // a datagram with another identifier
	Begins   string // a datagram that begins a connection
	Opens    string // a datagram that is answered with a challenge or a cookie, with which the client proves its address; "": there is none
}

// Queries to a game server. The server answers them with a challenge: the first query has no challenge, the second has a wrong one.
var (
	QueryInfo   = "payload=0xffffffff54" + hex.EncodeToString([]byte("Source Engine Query\x00"))
	QueryPlayer = "payload=0xffffffff55ffffffff"
)

// GameServer is a server that server lists query.
var GameServer = UDPService{Protocol: "a2s", Lacks: "len=128", Begins: "len=128", Opens: QueryInfo}

// Requests to a server of RakNet: the first is answered, the second has a wrong cookie.
const (
	rakNetMagic   = "00ffff00fefefefefdfdfdfd12345678"
	RequestFirst  = "payload=0x05" + rakNetMagic + "0b0000000000000000000000000000"
	RequestForged = "payload=0x07" + rakNetMagic + "000000000004f5fffffdd0b804d40000000000000001"
	rakNetData    = "len=128 payload=0x84"
	rakNetReply   = "payload=0x06" + rakNetMagic + "00000000000000010005d4"
)

// RakNetServer is a server of Minecraft Bedrock, which has identified itself.
var RakNetServer = UDPService{Protocol: "raknet", Issues: rakNetReply, Lacks: rakNetData, Begins: rakNetData, Opens: RequestFirst}

// Asks returns a query of an unknown client.
func (u UDPService) Asks(query string) string { return stranger + query }

// UDPServices has a service of each protocol.
var UDPServices = []UDPService{
	{Protocol: "generic", Lacks: "len=128", Begins: "len=128"},
	{
		Protocol: "wireguard", Issues: "len=120 payload=0x0200000001000000", Has: "len=128 payload=0x0400000001000000",
		Lacks: "len=128 payload=0x0400000002000000", Begins: "len=176 payload=0x01000000" + strings.Repeat("07", 140),
	},
	{
		Protocol: "quic", Issues: "len=1228 payload=0xc000000001080102030405060708080101010101010101", Has: "len=128 payload=0x400101010101010101",
		Lacks: "len=128 payload=0x400101010101010102", Begins: "len=1228 payload=0xc0000000010801020304050607080801020304050607ff",
	},
}

// The packets of two clients: the service has answered the player for a while, and has not answered the stranger.
const (
	player   = "udp 9.9.9.9:4000 > 10.0.0.2:7000 "
	toPlayer = "udp 10.0.0.2:7000 > 9.9.9.9:4000 "
	stranger = "udp 9.9.9.10:4000 > 10.0.0.2:7000 "
)

// Policy returns a policy with the service. A few packets count as a flood.
func (u UDPService) Policy() string {
	return "default: drop\nreplies: drop\nchecks: off\nservices: [{name: game, port: udp/7000, udp: {protect: " + u.Protocol +
		", start: {rate: 10/s, burst: 10}, known: {rate: 10000000/s, burst: 10000000}, total: {rate: 10/s, burst: 10}}}]\n"
}

// Known returns a packet of a known client.
func (u UDPService) Known() string { return player + u.Lacks }

// Proved returns a packet of an unknown client with the identifier.
func (u UDPService) Proved() string { return stranger + u.Has }

// Refused returns a packet of a flood, without the identifier.
func (u UDPService) Refused() string { return stranger + u.Lacks }

// Beginning returns the first packet of an unknown client.
func (u UDPService) Beginning() string { return stranger + u.Begins }

// Meet exchanges datagrams until the client is known. Then the service issues an identifier, if the protocol has one.
func (u UDPService) Meet(xdp, egress *ebpf.Program) error {
	for i := range ir.KnownTimes {
		if i > 0 {
			if err := AgeFlows(xdp, 1); err != nil {
				return err
			}
		}
		if _, err := Arrive(xdp, u.Known()); err != nil {
			return err
		}
		if err := Leave(egress, toPlayer+u.Lacks); err != nil {
			return err
		}
	}
	if u.Issues == "" {
		return nil
	}
	return Leave(egress, toPlayer+u.Issues)
}

// Flood sends this number of first packets of an unknown client. Then this client uses the identifier, if the protocol has one.
func (u UDPService) Flood(xdp *ebpf.Program, packets int) error {
	for range packets {
		if _, err := Arrive(xdp, u.Beginning()); err != nil {
			return err
		}
	}
	if u.Has == "" {
		return nil
	}
	_, err := Arrive(xdp, u.Proved())
	return err
}
