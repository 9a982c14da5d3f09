/** SCIM of a whole server on PostgreSQL. */
import { conversations } from './conversations.ts';

conversations('postgres');
