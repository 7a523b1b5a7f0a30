package policy

// tracking reads the value of track.
func tracking(text string) (Tracking, *flaw) {
	on, ok := switches[text]
	switch {
	case !ok:
		return TrackAsIs, want("true or false", text).hintf(
			"false keeps the service out of conntrack's table, true has its packets checked against it")
	case on:
		return Track, nil
	}
	return TrackNot, nil
}

// notTracked are words that are near to track by their letters, and say the opposite.
var notTracked = []string{"notrack", "no-track", "untracked"}

// trackedOneWay reports that a service, which n is, shares a port with an earlier one and is to be tracked otherwise:
// what is exempted is a port, before anything else is asked about the packet.
func (p place) trackedOneWay(earlier []Service, s Service, n *node) {
	for _, e := range earlier {
		if !opposed(s.Track, e.Track) || s.untracks() && n.Get("track") == nil || e.untracks() { // of those protectedOnce tells
			continue
		}
		if port, ok := sharedPort(s.Port, e.Port); ok {
			p.errorf(n.Get("track").Pos, "track must be the same for all services of a port: %s is %s in line %d, and %s here",
				port, e.Track, e.Pos.Line, s.Track).Hint = "give both the same track, or each ports of its own"
			return
		}
	}
}

// String says what is done, for messages.
func (t Tracking) String() string {
	return [...]string{TrackAsIs: "tracked as it is", TrackNot: "not tracked", Track: "tracked"}[t]
}

func opposed(a, b Tracking) bool { return a == Track && b == TrackNot || a == TrackNot && b == Track }

// sharedPort is the first of the ports that are in both lists.
func sharedPort(as, bs []Port) (Port, bool) {
	for _, a := range as {
		for _, b := range bs {
			both := Port{max(a.Proto, b.Proto), max(a.First, b.First), min(a.Last, b.Last)}
			if (a.Proto == b.Proto || a.Proto == 0 || b.Proto == 0) && both.First <= both.Last {
				return both, true
			}
		}
	}
	return Port{}, false
}

// readTraffic reads a kind of traffic that is not tracked.
func readTraffic(text string) ([]Traffic, *flaw) {
	kinds, f := choices(trafficWords)(text)
	if f != nil && f.hint == "" {
		f.hintf("a service is exempted with `track: false`")
	}
	return kinds, f
}

var trafficWords = map[string][]Traffic{"loopback": {Loopback}}
