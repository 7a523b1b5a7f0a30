// Package counts adds up what a policy has counted in XDP and in netfilter, and says what of it goes on when another
// policy takes its place, or when its rules move.
package counts
