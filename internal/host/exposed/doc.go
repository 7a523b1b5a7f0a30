// SPDX-License-Identifier: Apache-2.0

// Package exposed compares the ports that a policy opens with the ports at which programs of this host listen. It opens and closes nothing, and makes
// no policy: firstpolicy does.
//
//	openings := exposed.Openings(p)
//	var f exposed.Follower
//	ports := f.Ports(ctx, openings, devices) // ports that listen and are closed, and ports that are open while nothing listens
package exposed
