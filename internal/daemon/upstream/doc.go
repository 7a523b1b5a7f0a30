// Package upstream decides what the routers upstream are told. In: the policy that runs, what people ask for
// (`floodwall-bgp announce`), and the harm that an attack does. Out: what is wanted of `floodwall-bgp`
// (internal/bgp/wire). It speaks no BGP: bgp/speaker does.
//
// book.go keeps what is announced, who wants it and until when. tell.go says it to the process. ladder.go has the
// daemon announce by itself.
//
//	book := upstream.InState(state, bpffs, datapath.DefaultDir)
//	a, err := book.Announce(ctx, u, upstream.Request{Kind: wire.RTBH, Flow: wire.Flow{To: victim}}, time.Now())
package upstream
