/** SCIM of a whole server on SQLite. */
import { conversations } from './conversations.ts';

conversations('sqlite');
