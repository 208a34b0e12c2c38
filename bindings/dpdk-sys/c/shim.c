#include "shim.h"

int shim_errno(void) { return rte_errno; }

uint32_t shim_lcore_id(void) { return rte_lcore_id(); }

uint64_t shim_rdtsc(void) { return rte_rdtsc(); }

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool) { return rte_pktmbuf_alloc(pool); }

int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void shim_pktmbuf_free(struct rte_mbuf *mbuf) { rte_pktmbuf_free(mbuf); }

void shim_pktmbuf_share(struct rte_mbuf *mbuf) { rte_pktmbuf_refcnt_update(mbuf, 1); }

uint16_t shim_pktmbuf_external_refcnt(const struct rte_mbuf *mbuf)
{
	return rte_mbuf_ext_refcnt_read(mbuf->shinfo);
}

int shim_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail) { return rte_pktmbuf_chain(head, tail); }

int shim_pktmbuf_read(const struct rte_mbuf *mbuf, uint32_t offset, uint32_t len, void *out)
{
	const void *bytes = rte_pktmbuf_read(mbuf, offset, len, out);

	if (bytes == NULL)
		return -EINVAL;
	/* Contiguous bytes are pointed at, not copied. */
	if (bytes != out)
		memcpy(out, bytes, len);
	return 0;
}

uint16_t shim_pktmbuf_room(struct rte_mempool *pool) { return rte_pktmbuf_data_room_size(pool); }

uint32_t shim_mempool_size(const struct rte_mempool *pool) { return pool->size; }

uint32_t shim_mempool_uncached(const struct rte_mempool *pool)
{
	return rte_mempool_get_ops(pool->ops_index)->get_count(pool);
}

void shim_mempool_flush_cache(struct rte_mempool *pool)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, rte_lcore_id());

	if (cache != NULL)
		rte_mempool_cache_flush(cache, pool);
}

#define RSS_GROUPS (RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE)

static void select_all(struct rte_eth_rss_reta_entry64 *groups, uint16_t len)
{
	for (uint16_t entry = 0; entry < len; entry++)
		groups[entry / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << entry % RTE_ETH_RETA_GROUP_SIZE;
}

int shim_rss_table(uint16_t port, uint16_t len, const uint16_t *table, uint16_t table_len)
{
	struct rte_eth_rss_reta_entry64 groups[RSS_GROUPS] = { 0 };

	if (len > RTE_ETH_RSS_RETA_SIZE_512 || table_len == 0)
		return -EINVAL;
	select_all(groups, len);
	for (uint16_t entry = 0; entry < len; entry++)
		groups[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE] = table[entry % table_len];
	return rte_eth_dev_rss_reta_update(port, groups, len);
}

int shim_rss_table_read(uint16_t port, uint16_t len, uint16_t *table)
{
	struct rte_eth_rss_reta_entry64 groups[RSS_GROUPS] = { 0 };
	int code;

	if (len > RTE_ETH_RSS_RETA_SIZE_512)
		return -EINVAL;
	select_all(groups, len);
	code = rte_eth_dev_rss_reta_query(port, groups, len);
	for (uint16_t entry = 0; code == 0 && entry < len; entry++)
		table[entry] = groups[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE];
	return code;
}

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t room)
{
	return rte_eth_rx_burst(port, queue, mbufs, room);
}

uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

int shim_link(uint16_t port, uint32_t *speed_mbps, int *up)
{
	struct rte_eth_link link;
	int rc = rte_eth_link_get_nowait(port, &link);

	if (rc == 0) {
		*speed_mbps = link.link_speed;
		*up = link.link_status;
	}
	return rc;
}

const char *shim_bus_name(uint16_t port)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port, &info) != 0 || info.device == NULL)
		return NULL;
	return rte_bus_name(rte_dev_bus(info.device));
}

uint16_t shim_port_by_devargs(const char *devargs)
{
	struct rte_dev_iterator iterator;
	uint16_t port;

	if (rte_eth_iterator_init(&iterator, devargs) != 0)
		return RTE_MAX_ETHPORTS;
	port = rte_eth_iterator_next(&iterator);
	if (port != RTE_MAX_ETHPORTS)
		rte_eth_iterator_cleanup(&iterator);
	return port;
}
