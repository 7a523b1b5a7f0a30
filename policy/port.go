// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

const portForm = "a number from 0 to 65535, a range or a service, as in 443, tcp/443, udp/1000-2000 or https"

var ports = list(define("ports", anyOf(whole(0, 65535), text("^((tcp|udp)/)?([0-9]+(-[0-9]+)?|[A-Za-z][A-Za-z0-9-]*)$")).
	titled("port").described("A port, a range, or a name of `/etc/services`, for TCP and UDP unless `tcp/` or `udp/` stands before it. A name means its "+
	"usual ports: `dns` is tcp/53 and udp/53, `https` is tcp/443, `quic` is udp/443.").withExamples(`"tcp/443", "udp/53", "tcp/8000-8999", 22, "ssh"`)), port)

// port parses one alternative of port or sport.
func port(text string) ([]Port, *flaw) {
	proto, rest, hasProto := strings.Cut(text, "/")
	if !hasProto {
		proto, rest = "", text
	}
	number, known := portProtos[proto]
	if !known {
		return nil, portHint(text, proto, rest)
	}
	if ports, f := namedPorts(text, number, rest); ports != nil || f != nil {
		return ports, f
	}
	r, f := span(rest, portForm, 65535)
	if f != nil {
		f = &flaw{strings.Replace(f.msg, wording.Quote(rest), wording.Quote(text), 1), f.hint}
		if hasProto && strings.HasPrefix(f.hint, "write ") {
			f.hint = strings.Replace(f.hint, "write ", "write "+proto+"/", 1)
		}
		return nil, f
	}
	return []Port{{number, uint16(r.First), uint16(r.Last)}}, nil
}

// portProtos are the protocols whose ports Floodwall reads.
var portProtos = map[string]uint8{"": 0, "tcp": protoTCP, "udp": protoUDP}

func portHint(text, proto, rest string) *flaw {
	f := want(portForm, text)
	lower := strings.ToLower(proto)
	_, reversed := portProtos[strings.ToLower(rest)]
	switch _, ok := portProtos[lower]; {
	case ok:
		f.hintf("write %s/%s", lower, rest)
	case reversed && rest != "":
		f.hintf("write %s/%s", strings.ToLower(rest), proto)
	case lower == "any" || lower == "all" || lower == "*":
		f.hintf("write %s, which is that port of TCP and of UDP", rest)
	case protoNumber[lower] != 0:
		f.hintf("only the ports of tcp and udp can be tested")
	}
	return f
}

// String returns p in the policy's notation.
func (p Port) String() string {
	s := Range{uint32(p.First), uint32(p.Last)}.String()
	if p.Proto != 0 {
		s = ProtocolName(p.Proto) + "/" + s
	}
	return s
}

// String returns r in the policy's notation.
func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// protos returns the protocols whose packets p can match.
func (p Port) protos() []uint8 {
	if p.Proto == 0 {
		return []uint8{protoTCP, protoUDP}
	}
	return []uint8{p.Proto}
}
