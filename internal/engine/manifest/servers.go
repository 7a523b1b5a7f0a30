package manifest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// What is announced for servers of which none has answered: the MSS of Ethernet, and the window scale of a kernel with its
// usual buffers.
var (
	usualMSS    = [2]uint16{1460, 1440}
	usualWScale = uint8(7)
)

// errNoServer says what to do where no server shows.
var errNoServer = errors.New("no server of it is known; say `backends`, or apply again once there are connections")

// fromServers is what SYN-ACKs for a service behind this host announce: what the policy says, else what all of its
// servers that answer do. To offer an option that a server lacks would break its connections. note says what
// is announced when not all of them have answered, "" when they have.
func fromServers(s *ir.Protection, m ir.CookieMethod, servers facts.Servers) (f ir.Handshake, note string) {
	f.Method = m
	Announce(s, &f, servers.Survey)
	switch {
	case servers.Many:
		return f, usualNote(s.Service, &f, facts.ErrTooMany)
	case !servers.Known:
		return f, usualNote(s.Service, &f, errNoServer)
	}
	return f, silentNote(s.Service, &f, servers.Survey)
}

// usualNote says what is announced for servers that are not known, and why they are not.
func usualNote(service string, f *ir.Handshake, why error) string {
	return fmt.Sprintf("service %q: SYN-ACKs announce what is usual (%s): %v", service, announced(f), why)
}

// silentNote says in one line who has not answered and what that means, "" when all have.
func silentNote(service string, f *ir.Handshake, s facts.SurveyServers) string {
	if s.Silent == nil {
		return ""
	}
	var names []string
	for _, server := range s.Silent {
		names = append(names, server.String())
	}
	whose := "what the others have"
	if s.Answered == nil {
		whose = "what is usual"
	}
	return fmt.Sprintf("service %q: SYN-ACKs announce %s (%s), as %s did not answer: apply again when they do, or `floodwall doctor` compares them",
		service, whose, announced(f), strings.Join(names, ", "))
}

// announced is what SYN-ACKs announce, in words.
func announced(f *ir.Handshake) string {
	words := []string{fmt.Sprintf("MSS %d in IPv4 and %d in IPv6", f.MSS[0], f.MSS[1])}
	for bit, name := range OptionNames {
		switch {
		case f.Options>>bit&1 == 0:
		case ir.TCPOptions(1<<bit) == ir.WindowScaling:
			words = append(words, fmt.Sprintf("%s %d", name, f.WScale))
		default:
			words = append(words, name)
		}
	}
	return strings.Join(words, ", ")
}

// Announce takes what servers do into what is announced.
func Announce(s *ir.Protection, f *ir.Handshake, all facts.SurveyServers) {
	f.MSS, f.WScale, f.Options = usualMSS, usualWScale, ir.WindowScaling|ir.SACK|ir.Timestamps
	if all.Answered != nil {
		f.Options = optionsOf(all)
		f.WScale = uint8(max(all.WScale, 0))
	}
	for family, mss := range all.MSS {
		if mss > 0 {
			f.MSS[family] = mss
		}
	}
	if s.MSS > 0 {
		f.MSS = [2]uint16{s.MSS, s.MSS}
	}
	if s.WScale >= 0 && f.Options&ir.WindowScaling != 0 {
		f.WScale = uint8(s.WScale)
	}
}

func optionsOf(all facts.SurveyServers) (o ir.TCPOptions) {
	for option, does := range map[ir.TCPOptions]bool{
		ir.WindowScaling: all.WScale >= 0, ir.SACK: all.SACK, ir.Timestamps: all.Timestamps, ir.ECN: all.ECN,
	} {
		if does {
			o |= option
		}
	}
	return o
}
