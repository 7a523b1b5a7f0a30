package rig

import (
	"encoding/hex"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// UDPService is a UDP service at port 7000 that is protected from floods, and datagrams that its protocol has. Zeros follow what they begin with.
type UDPService struct {
	Protocol string
	Issues   string // the payload by which the service issues an identifier; "" where there are none, as in all that follows but Begins
	Has      string // one that has it,
	Lacks    string // one that has another,
	Begins   string // and one with which somebody begins
	Opens    string // one that is answered with a challenge or a cookie, and by which the client proves its address; "": there is none
}

// Queries at a game server, which are answered with a challenge: one without one, and one with a wrong one.
var (
	QueryInfo   = "payload=0xffffffff54" + hex.EncodeToString([]byte("Source Engine Query\x00"))
	QueryPlayer = "payload=0xffffffff55ffffffff"
)

// GameServer is one of which server lists ask.
var GameServer = UDPService{Protocol: "a2s", Lacks: "len=128", Begins: "len=128", Opens: QueryInfo}

// Requests at a server of RakNet: a first one, which is answered, and a second one with a wrong cookie.
const (
	rakNetMagic   = "00ffff00fefefefefdfdfdfd12345678"
	RequestFirst  = "payload=0x05" + rakNetMagic + "0b0000000000000000000000000000"
	RequestForged = "payload=0x07" + rakNetMagic + "000000000004f5fffffdd0b804d40000000000000001"
	rakNetData    = "len=128 payload=0x84"
	rakNetReply   = "payload=0x06" + rakNetMagic + "00000000000000010005d4"
)

// RakNetServer is one of Minecraft Bedrock, which has said what it is.
var RakNetServer = UDPService{Protocol: "raknet", Issues: rakNetReply, Lacks: rakNetData, Begins: rakNetData, Opens: RequestFirst}

// Asks is a query of one who is not known.
func (u UDPService) Asks(query string) string { return stranger + query }

// UDPServices has one of each protocol.
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

// A player is a client that the service has answered for a while, and a stranger one that it has not.
const (
	player   = "udp 9.9.9.9:4000 > 10.0.0.2:7000 "
	toPlayer = "udp 10.0.0.2:7000 > 9.9.9.9:4000 "
	stranger = "udp 9.9.9.10:4000 > 10.0.0.2:7000 "
)

// Policy is one with the service. Few packets make a flood.
func (u UDPService) Policy() string {
	return "default: drop\nreplies: drop\nchecks: off\nservices: [{name: game, port: udp/7000, udp: {protect: " + u.Protocol +
		", start: {rate: 10/s, burst: 10}, known: {rate: 10000000/s, burst: 10000000}, total: {rate: 10/s, burst: 10}}}]\n"
}

// Known is a packet of a known client.
func (u UDPService) Known() string { return player + u.Lacks }

// Proved is a packet of another client, with the identifier.
func (u UDPService) Proved() string { return stranger + u.Has }

// Refused is a packet of a flood, without it.
func (u UDPService) Refused() string { return stranger + u.Lacks }

// Beginning is a packet of one who begins.
func (u UDPService) Beginning() string { return stranger + u.Begins }

// Meet has the service answer a client until that is known, and issue an identifier.
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

// Flood has so many packets come of one who begins, and uses the identifier.
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
