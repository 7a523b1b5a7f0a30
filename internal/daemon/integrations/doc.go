// Package integrations joins the daemon to programs of others: it writes events to systemd's journal and to a webhook,
// and bans whom CrowdSec and Suricata name. It decides no ban by itself.
//
//	f := integrations.AlertFollower{Sets: sets, Report: report} // sets as operate has them
//	err := f.Run(ctx)                                           // reads eve.json of Suricata
package integrations

import "time"

// How often each looks at the policy and at what it follows, and how long it waits at most after failures.
const (
	look     = time.Second
	mostWait = 5 * time.Minute
)
