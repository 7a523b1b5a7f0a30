// SPDX-License-Identifier: Apache-2.0

// Package integrations connects the daemon to other programs. It writes events to systemd's journal and to a webhook. It also bans the addresses that
// CrowdSec and Suricata report. The package makes no own decisions about bans.
//
//	f := integrations.AlertFollower{Sets: sets, Report: report} // the sets of package operate
//	err := f.Run(ctx)                                           // reads eve.json of Suricata
package integrations

import "time"

// How often each integration checks the policy and its source, and the longest wait after failures.
const (
	look     = time.Second
	mostWait = 5 * time.Minute
)
