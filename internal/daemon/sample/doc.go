// Package sample hands out a part of the packets that come to devices and that XDP passes, drawn at random. It needs nothing of what
// runs, and costs nothing while nobody samples. The samples are taken by a packet socket, behind XDP and before netfilter: where a policy
// runs in netfilter, they are packets that it may drop yet.
package sample
